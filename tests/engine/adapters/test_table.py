"""Models that are a table of token vectors give what sentence-transformers and model2vec make of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

from engine.adapters.forward.weights import BadWeights
from engine.errors import InvalidInput
from engine.requests import EncodeOptions, Item, Task
from engine.tuning.references import compare
from tests.engine.adapters.tiny_texts import FAMILIES, TEXTS, WORDS, Served, entry, saved, tokenizer

UNKNOWN = [*TEXTS, "w1 nobody w2", "nobody", "", "w5 " * 1000]
DIM = 24


def dense(outputs: list[Any]) -> np.ndarray:
    return np.stack([output.dense for output in outputs])


def static(to: Path, *after: torch.nn.Module) -> SentenceTransformer:
    """A directory of sentence-transformers, and the library's own model of it."""
    torch.manual_seed(0)
    table = StaticEmbedding(tokenizer("[CLS] $A [SEP]"), torch.randn(len(WORDS), DIM))
    model = SentenceTransformer(
        modules=[table, *after], prompts={"query": "w7 ", "document": ""}, device="cpu"
    )
    model.save(str(to), create_model_card=False)
    return model


def model2vec(to: Path, kind: str, **config: Any) -> np.ndarray:
    """A directory as model2vec 0.10 saves it, and the vector of each token, which it takes the mean of."""
    torch.manual_seed(0)
    tensors = {"embeddings": torch.randn(len(WORDS), DIM)}
    rows = tensors["embeddings"]
    if kind == "shared":
        rows = torch.randint(-127, 127, (20, DIM), dtype=torch.int8)
        mapping, strengths = torch.randint(0, 20, (len(WORDS),)), torch.rand(len(WORDS), dtype=torch.float64)
        tensors = {"embeddings": rows, "mapping": mapping, "weights": strengths}
        rows = rows[mapping] * strengths[:, None]
    save_file(tensors, to / "model.safetensors")
    tokenizer("$A").backend_tokenizer.save(str(to / "tokenizer.json"))
    (to / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True, **config}))
    return rows.double().numpy()


AFTER: dict[str, Callable[[], list[torch.nn.Module]]] = {
    "alone": lambda: [],
    "of length 1": lambda: [Normalize()],
    "dense behind": lambda: [Dense(DIM, 12, activation_function=torch.nn.Tanh()), Normalize()],
}


@pytest.mark.parametrize("after", list(AFTER))
def test_a_table_of_sentence_transformers_gives_its_vectors(
    after: str, tmp_path: Path, compared: Callable[..., None]
):
    reference = static(tmp_path, *AFTER[after]())
    served = Served(tmp_path, normalize=after != "alone")

    documents = dense(served.encode(UNKNOWN))
    alone = [dense(served.encode([text]))[0] for text in UNKNOWN]
    back = dense(served.encode(UNKNOWN[::-1]))[::-1]
    expected = reference.encode_document(UNKNOWN, batch_size=1)
    queries = dense(served.encode(UNKNOWN, is_query=True))

    assert np.abs(documents - expected).max() <= 1e-5
    assert np.abs(documents - alone).max() <= 1e-6 and np.abs(documents - back).max() <= 1e-6
    assert np.abs(queries - reference.encode_query(UNKNOWN)).max() <= 1e-5
    told = slice(len(TEXTS))  # nothing has no direction
    name = f"tiny StaticEmbedding, {after}"
    compared("text_encoder", name, "sentence-transformers", documents[told], expected[told], alone[told])


@pytest.mark.parametrize("kind", ["whole", "shared"])
def test_a_directory_of_model2vec_leaves_out_what_is_unknown(kind: str, tmp_path: Path):
    rows = model2vec(tmp_path, kind)
    served = Served(tmp_path)
    expected = np.zeros((len(UNKNOWN), DIM))
    for place, text in enumerate(UNKNOWN):
        ids = [WORDS.index(word) for word in text.split() if word in WORDS]
        expected[place] = rows[ids].mean(0) if ids else 0
    lengths = np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)

    found = dense(served.encode(UNKNOWN))
    raw = dense(served.encode(UNKNOWN, normalize=False))
    alone = np.concatenate([dense(served.encode([text])) for text in UNKNOWN])

    assert np.abs(found - expected / lengths).max() <= 1e-5
    assert np.abs(raw - expected).max() <= 1e-4 * max(1.0, float(lengths.max()))
    assert np.abs(found - alone).max() <= 1e-6
    assert not found[len(TEXTS) + 1].any() and not found[len(TEXTS) + 2].any()


def test_a_text_is_as_long_as_the_entry_or_the_directory_says(tmp_path: Path):
    model2vec(tmp_path, "whole", max_length=600)
    long = "w5 " * 9000

    read = [Served(tmp_path, **given).prepare([long])[0].cost for given in ({}, {"max_tokens": 8999})]

    (tmp_path / "config.json").write_text('{"model_type": "model2vec"}')
    assert [*read, Served(tmp_path).prepare([long])[0].cost] == [600, 8999, 8192]


def test_tables_are_shortened_and_compared_as_other_vectors_are(tmp_path: Path):
    reference = static(tmp_path)
    served = Served(tmp_path, matryoshka=(8,), dims={"dense": DIM})
    alike = reference.similarity(reference.encode_query(TEXTS[:1]), reference.encode_document(TEXTS))[0]

    short = dense(served.encode(TEXTS, dimensions=8))
    scores = served.score(TEXTS[0], TEXTS)

    cut = reference.encode_document(TEXTS, truncate_dim=8, normalize_embeddings=True)
    assert np.abs(short - cut).max() <= 1e-5
    assert np.abs(np.array(scores) - alike.numpy()).max() <= 1e-5
    with pytest.raises(InvalidInput, match="cannot do dimensions '9'"):
        served.encode(TEXTS, dimensions=9)


def test_queries_may_be_looked_up_where_documents_are_read(tmp_path: Path):
    bert = saved(FAMILIES["bert"](), tmp_path / "bert")
    torch.manual_seed(1)
    table = StaticEmbedding(tokenizer("$A"), torch.randn(len(WORDS), 32))
    router = Router.for_query_document([table], [Transformer(str(bert)), Pooling(32, "mean")])
    reference = SentenceTransformer(modules=[router, Normalize()], device="cpu")
    reference.save(str(tmp_path / "saved"), create_model_card=False)
    served = Served(tmp_path / "saved")

    jobs = served.prepare(TEXTS, is_query=True) + served.prepare(TEXTS)
    found = dense(served.model.run(jobs))

    assert np.abs(found[: len(TEXTS)] - reference.encode_query(TEXTS, batch_size=1)).max() <= 1e-4
    assert np.abs(found[len(TEXTS) :] - reference.encode_document(TEXTS, batch_size=1)).max() <= 1e-4


def test_an_operator_can_compare_a_table_with_its_library(tmp_path: Path):
    static(tmp_path)

    found = compare(entry(outputs=("dense",)), tmp_path)

    assert found is not None and found.passed and found.apart.cosine == pytest.approx(1)


def test_what_a_table_takes_is_what_it_holds_and_it_gives_it_back(tmp_path: Path):
    model2vec(tmp_path, "shared")
    served = Served(tmp_path)
    held = served.model.tensors()

    assert served.footprint.weights_bytes == sum(tensor.nbytes for tensor in held.values())
    assert served.footprint.workspace_per_cost >= DIM * 4
    served.model.unload()
    assert sum(tensor.nbytes for tensor in held.values()) == 0


def test_token_ids_of_a_client_are_read_and_checked(tmp_path: Path):
    static(tmp_path)
    served = Served(tmp_path)
    ids = tuple(WORDS.index(word) for word in TEXTS[0].split())

    given, beyond = served.preparer.prepare(
        Task.ENCODE, [Item(tokens=ids), Item(tokens=(len(WORDS),))], EncodeOptions()
    )

    assert np.array_equal(dense(served.model.run([given])), dense(served.encode(TEXTS[:1])))
    assert isinstance(beyond, InvalidInput) and beyond.item == 1


@pytest.mark.parametrize(
    ("tensors", "given", "said"),
    [
        ({"other": torch.ones(4, 2)}, {}, "holds no table of vectors under embedding.weight or embeddings"),
        ({"embeddings": torch.ones(4)}, {}, "holds no table"),
        (
            {"embeddings": torch.ones(4, 2), "weights": torch.ones(3)},
            {},
            r"weights of the shape \(3,\) for 4",
        ),
        ({"embeddings": torch.ones(4, 2)}, {"outputs": ("sparse",)}, "it makes dense ones"),
        ({"embeddings": torch.ones(4, 2)}, {"dims": {"dense": 3}}, "the model makes 2"),
        (None, {}, "pickles are not read"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(
    tensors: dict[str, torch.Tensor] | None, given: dict[str, Any], said: str, tmp_path: Path
):
    model2vec(tmp_path, "whole")
    (tmp_path / "model.safetensors").unlink()
    if tensors is not None:
        save_file(tensors, tmp_path / "model.safetensors")

    with pytest.raises(BadWeights, match=said):
        Served(tmp_path, **given)
