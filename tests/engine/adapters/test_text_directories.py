"""Directories of sentence-transformers are served as they are, and give what the library gives."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.torch import save_file
from sentence_transformers import MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from sentence_transformers.util import maxsim

from engine.adapters.family import family
from engine.adapters.forward import weights
from engine.requests import EncodeOptions, Item, OutputType, Task
from tests.engine.adapters.tiny_texts import (
    DECODERS,
    FAMILIES,
    LONGEST,
    TEXTS,
    WORDS,
    Served,
    saved,
    tokenizer,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def dense(outputs: list[Any]) -> np.ndarray:
    return np.stack([output.dense for output in outputs])


def together(served: Served, texts: list[str], **options: Any) -> np.ndarray:
    """Dense vectors of a batch, held to be those of each text alone, whatever place it has."""
    forth = dense(served.encode(texts, **options))
    back = dense(served.encode(texts[::-1], **options))[::-1]
    alone = np.concatenate([dense(served.encode([text], **options)) for text in texts])
    assert np.abs(forth - alone).max() <= 1e-5
    assert np.abs(back - alone).max() <= 1e-5
    return forth


def transformer(path: Path, **given: Any) -> Transformer:
    return Transformer(str(path), max_seq_length=LONGEST, **given)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_each_family_gives_the_vectors_of_sentence_transformers(
    name: str, tmp_path: Path, compared: Callable[..., None]
):
    last = name in DECODERS
    path = saved(FAMILIES[name](), tmp_path / "plain", ends="$A <eos>" if last else "[CLS] $A [SEP]")
    modules = [transformer(path), Pooling(32, "lasttoken" if last else "mean"), Normalize()]
    reference = SentenceTransformer(modules=modules, prompts={"query": "w7 ", "document": ""}, device="cpu")
    reference.save(str(tmp_path / "saved"), create_model_card=False)
    served = Served(tmp_path / "saved", outputs=("dense",))

    documents = together(served, TEXTS)
    queries = dense(served.encode(TEXTS, is_query=True))
    expected = reference.encode_document(TEXTS, batch_size=1)

    alone = [dense(served.encode([text]))[0] for text in TEXTS]
    compared("text_encoder", f"tiny {name}", "sentence-transformers", documents, expected, alone)
    assert np.abs(documents - expected).max() <= 1e-4
    assert np.abs(queries - reference.encode_query(TEXTS, batch_size=1)).max() <= 1e-4
    assert np.abs(queries - documents).max() > 1e-2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3", "embeddinggemma"])
def test_half_precision_keeps_the_direction(name: str, dtype: torch.dtype, tmp_path: Path):
    served = Served(saved(FAMILIES[name](), tmp_path), pooling="mean", outputs=("dense",))
    expected = dense(served.encode(TEXTS))
    halved = Served(tmp_path, pooling="mean", outputs=("dense",))
    model = tf.AutoModel.from_pretrained(tmp_path, dtype=dtype)

    for transformer in halved.model.transformers:
        transformer.__init__(type(transformer.trained)(model))
    found = dense(halved.encode(TEXTS))

    assert (found * expected).sum(1).min() >= 0.999


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(FAMILIES["bert"](), tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def mlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(FAMILIES["bert"](), tmp_path_factory.mktemp("mlm"), tf.AutoModelForMaskedLM)


STACKS: dict[str, Callable[[], list[torch.nn.Module]]] = {
    "two poolings": lambda: [Pooling(32, ("cls", "mean")), Dense(64, 16)],
    "every pooling": lambda: [
        Pooling(32, ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"))
    ],
    "dense, twice": lambda: [
        Pooling(32, "mean"),
        Dense(32, 48, bias=False, activation_function=torch.nn.Identity()),
        Dense(48, 12, activation_function=torch.nn.GELU()),
    ],
    "residual and norm": lambda: [Pooling(32, "cls"), Dense(32, 8, use_residual=True), LayerNorm(8)],
    "without the prompt": lambda: [Pooling(32, ("mean", "weightedmean", "cls"), include_prompt=False)],
}


@pytest.mark.parametrize("stack", list(STACKS))
def test_what_comes_after_the_transformer_is_done_as_the_library_does_it(
    stack: str, bert: Path, tmp_path: Path
):
    torch.manual_seed(1)
    prompts = {"query": "w7 w3 : ", "document": ""}
    reference = SentenceTransformer(
        modules=[transformer(bert), *STACKS[stack]()], prompts=prompts, device="cpu"
    )
    reference.save(str(tmp_path), create_model_card=False)
    served = Served(tmp_path, outputs=("dense",), normalize=False)

    for found, expected in (
        (together(served, TEXTS, is_query=True), reference.encode_query(TEXTS, batch_size=1)),
        (together(served, TEXTS), reference.encode_document(TEXTS, batch_size=1)),
    ):
        assert np.abs(found - expected).max() <= 1e-4


def test_an_entrys_own_words_come_before_the_directorys(bert: Path, tmp_path: Path):
    modules = [Transformer(str(bert), max_seq_length=8), Pooling(32, "cls")]
    SentenceTransformer(modules=modules, prompts={"query": "w7 ", "document": "w3 "}).save(
        str(tmp_path), create_model_card=False
    )
    stored, own = Served(tmp_path), Served(tmp_path, pooling="mean", max_tokens=20, prompts={"query": ""})

    (longest,), (longer,) = stored.prepare(TEXTS[3:4]), own.prepare(TEXTS[3:4])
    (prompted,), (bare,) = stored.prepare(["w1"], is_query=True), own.prepare(["w1"], is_query=True)

    assert (longest.cost, longer.cost) == (8, 20)
    assert (prompted.cost, bare.cost, own.prepare(["w1"])[0].cost) == (4, 3, 4)
    assert own.prepare(["w1"])[0].payload.wanted.pooling == "mean"


@pytest.mark.parametrize("named", ["asked_with", "config"])
def test_a_decoder_ends_its_texts_where_the_model_wants_that(named: str, tmp_path: Path):
    path = saved(FAMILIES["qwen3"](), tmp_path, ends="$A")
    config = json.loads((path / "tokenizer_config.json").read_text())
    if named == "config":
        (path / "tokenizer_config.json").write_text(json.dumps({**config, "add_eos_token": True}))
    options = {"append_token": "<eos>"} if named == "asked_with" else {}
    served = Served(path, pooling="last", options=options)

    short, long = served.prepare(["w1 w2", "w1 " * 80])

    assert short.payload.ids.tolist() == [9, 10, WORDS.index("<eos>")]
    assert long.payload.ids[-1] == WORDS.index("<eos>")


def test_matryoshka_dimensions_are_those_that_the_entry_allows(bert: Path):
    served = Served(bert, matryoshka=(8,), options={"dimensions": 8})
    whole = Served(bert)

    cut = dense(served.encode(TEXTS))
    expected = dense(whole.encode(TEXTS))[:, :8]

    assert np.abs(cut - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() <= 1e-6
    assert dense(served.encode(TEXTS, dimensions=32)).shape[1] == 32


def row(output: Any) -> np.ndarray:
    found = np.zeros(output.sparse.dims, np.float32)
    found[output.sparse.indices] = output.sparse.values
    return found


def library_rows(found: Any) -> np.ndarray:
    return found.to_dense().numpy()


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_sparse_vectors_are_pooled_as_the_directory_says(
    pooling: str, activation: str, mlm: Path, tmp_path: Path
):
    modules = [
        transformer(mlm, transformer_task="fill-mask"),
        SpladePooling(pooling, activation_function=activation),
    ]
    reference = SparseEncoder(modules=modules, device="cpu")
    reference.save(str(tmp_path), create_model_card=False)
    served = Served(tmp_path, outputs=("sparse",))

    found = np.stack([row(output) for output in served.encode(TEXTS)])

    assert np.abs(found - library_rows(reference.encode(TEXTS, batch_size=1))).max() <= 1e-4
    assert np.abs(found[3] - row(served.encode(TEXTS[3:4])[0])).max() <= 1e-5


@pytest.mark.parametrize("where", ["router", "entry"])
def test_queries_without_a_transformer_are_looked_up(where: str, mlm: Path, tmp_path: Path):
    torch.manual_seed(2)
    looked_up = SparseStaticEmbedding(tokenizer("$A"), torch.rand(len(WORDS)))
    documents = [transformer(mlm, transformer_task="fill-mask"), SpladePooling("max")]
    reference = SparseEncoder(
        modules=[Router.for_query_document([looked_up], documents)], device="cpu", similarity_fn_name="dot"
    )
    path, options = tmp_path, {}
    if where == "router":
        reference.save(str(tmp_path), create_model_card=False)
    else:
        path, options = mlm, {"sparse_queries": "idf.json"}
        idf = dict(zip(WORDS, looked_up.weight.tolist(), strict=True))
        (mlm / "idf.json").write_text(json.dumps(idf))
    served = Served(path, outputs=("sparse",), options=options)
    queries = ["w1 w2 w1", "w9 ?"]
    expected = reference.encode_query(queries), reference.encode_document(TEXTS, batch_size=1)

    found = served.encode(queries, is_query=True)
    scores = served.score(queries[0], TEXTS)

    assert np.abs(np.stack([row(output) for output in found]) - library_rows(expected[0])).max() <= 1e-6
    alike = library_rows(expected[1]) @ library_rows(expected[0])[0]
    assert np.abs(np.array(scores) - alike).max() <= 1e-4
    assert served.encode([""], is_query=True)[0].sparse.indices.tolist() == []


def test_two_transformers_each_read_the_texts_of_their_role(bert: Path, tmp_path: Path):
    torch.manual_seed(3)
    other = saved(FAMILIES["modernbert"](), tmp_path / "other")
    router = Router.for_query_document(
        [transformer(other), Pooling(32, "cls"), Dense(32, 32)], [transformer(bert), Pooling(32, "mean")]
    )
    reference = SentenceTransformer(modules=[router, Normalize()], device="cpu")
    reference.save(str(tmp_path / "saved"), create_model_card=False)
    served = Served(tmp_path / "saved", outputs=("dense",))

    jobs = served.prepare(TEXTS, is_query=True) + served.prepare(TEXTS)
    found = dense(served.model.run(jobs))

    assert np.abs(found[: len(TEXTS)] - reference.encode_query(TEXTS, batch_size=1)).max() <= 1e-4
    assert np.abs(found[len(TEXTS) :] - reference.encode_document(TEXTS, batch_size=1)).max() <= 1e-4
    assert len(served.model.transformers) == 2


EXPANDED = {"strategy": "fixed", "attend": False, "length": 12}
COLBERTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "filled up": {"query_expansion": EXPANDED},
    "filled up and attended to": {"query_expansion": {**EXPANDED, "attend": True}},
    "at least": {"query_expansion": {**EXPANDED, "strategy": "min"}},
    "short documents": {"document_length": 10, "query_length": 6},
}


@pytest.mark.parametrize("kind", list(COLBERTS))
def test_multivectors_and_their_scores_are_those_of_the_library(kind: str, bert: Path, tmp_path: Path):
    torch.manual_seed(4)
    reference = MultiVectorEncoder(str(bert), device="cpu")
    reference.max_seq_length = LONGEST
    for name, value in COLBERTS[kind].items():
        setattr(reference[0], name, value)
    reference[2].skiplist_words = list("!,.?")
    reference[2].resolve_with_tokenizer(reference.tokenizer)
    reference.save(str(tmp_path), create_model_card=False)
    served = Served(tmp_path, outputs=("multivector",), dims={"multivector": 128})
    queries = reference.encode_query(TEXTS, batch_size=1)
    documents = reference.encode_document(TEXTS, batch_size=1)

    for found, expected in (
        (served.encode(TEXTS, is_query=True), queries),
        (served.encode(TEXTS), documents),
    ):
        for output, rows in zip(found, expected, strict=True):
            assert output.multivector.shape == tuple(rows.shape)
            assert np.abs(output.multivector - rows.numpy()).max() <= 1e-4
    scores = served.score(TEXTS[0], TEXTS)

    assert np.abs(np.array(scores) - maxsim(queries[:1], documents)[0].numpy()).max() <= 1e-3


@pytest.mark.parametrize("form", ["pylate", "stanford"])
def test_colbert_directories_of_other_libraries_are_read_too(form: str, tmp_path: Path):
    torch.manual_seed(5)
    path = saved(FAMILIES["bert"](), tmp_path)
    layer = {"linear.weight": torch.randn(24, 32)}
    if form == "pylate":
        (path / "1_Dense").mkdir()
        save_file(layer, path / "1_Dense" / "model.safetensors")
        dense = {
            "in_features": 32,
            "out_features": 24,
            "bias": False,
            "activation_function": "torch.nn.Identity",
        }
        (path / "1_Dense" / "config.json").write_text(json.dumps(dense))
        kinds = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
        modules = [{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate(kinds)]
        (path / "modules.json").write_text(json.dumps(modules))
        config = {
            "model_type": "ColBERT",
            "query_prefix": "[Q] ",
            "document_prefix": "[D] ",
            "query_length": 12,
            "document_length": 20,
            "attend_to_expansion_tokens": False,
            "skiplist_words": ["!", "?"],
        }
        (path / "config_sentence_transformers.json").write_text(json.dumps(config))
    else:
        encoder = weights.read(weights.stored_tensors(path))
        save_file(
            {**{f"bert.{k}": v for k, v in encoder.items()}, **layer},
            path / "model.safetensors",
            {"format": "pt"},
        )
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
        metadata = {"query_token_id": "[Q] ", "doc_token_id": "[D] ", "query_maxlen": 12, "doc_maxlen": 20}
        (path / "artifact.metadata").write_text(json.dumps({**metadata, "attend_to_mask_tokens": True}))
    reference = MultiVectorEncoder(str(path), device="cpu")
    served = Served(path, outputs=("multivector",))

    for found, expected in (
        (served.encode(TEXTS, is_query=True), reference.encode_query(TEXTS, batch_size=1)),
        (served.encode(TEXTS), reference.encode_document(TEXTS, batch_size=1)),
    ):
        for output, rows in zip(found, expected, strict=True):
            assert output.multivector.shape == tuple(rows.shape)
            assert np.abs(output.multivector - rows.numpy()).max() <= 1e-4


def test_three_heads_cost_one_forward_and_weigh_words_not_marks(tmp_path: Path):
    torch.manual_seed(6)
    path = saved(FAMILIES["xlm-roberta"](), tmp_path)
    sparse, colbert = torch.nn.Linear(32, 1), torch.nn.Linear(32, 32)
    for name, head in (("sparse_linear", sparse), ("colbert_linear", colbert)):
        save_file({k: v.detach() for k, v in head.state_dict().items()}, path / f"{name}.safetensors")
    served = Served(path, outputs=("dense", "sparse", "multivector"), pooling="cls")
    calls: list[int] = []
    hook = served.model.transformers[0].trained.model.register_forward_hook(lambda *_: calls.append(1))
    text = "w1 w2 w1 [UNK]"
    ids = torch.tensor([[2, 9, 10, 9, 1, 3]])
    with torch.inference_mode():
        states = tf.AutoModel.from_pretrained(path)(ids).last_hidden_state[0]
        strengths = sparse(states).relu()[:, 0]
        vectors = torch.nn.functional.normalize(colbert(states[1:]), dim=-1)

    (output,) = served.encode([text], output_types=tuple(OutputType))
    hook.remove()

    assert len(calls) == 1
    weighed = dict(zip(output.sparse.indices.tolist(), output.sparse.values.tolist(), strict=True))
    expected = {9: float(max(strengths[1], strengths[3])), 10: float(strengths[2])}
    assert weighed == pytest.approx({k: v for k, v in expected.items() if v > 0}, abs=1e-4)
    assert np.abs(output.multivector - vectors.numpy()).max() <= 1e-4
    assert np.abs(output.dense - torch.nn.functional.normalize(states[0], dim=0).numpy()).max() <= 1e-4


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_texts_are_scored_by_the_directorys_similarity(similarity: str, bert: Path, tmp_path: Path):
    reference = SentenceTransformer(
        modules=[transformer(bert), Pooling(32, "mean")],
        prompts={"query": "w7 ", "document": ""},
        similarity_fn_name=similarity,
        device="cpu",
    )
    reference.save(str(tmp_path), create_model_card=False)
    served = Served(tmp_path)
    expected = reference.similarity(reference.encode_query(TEXTS[:1]), reference.encode_document(TEXTS))[0]

    jobs = served.matches(TEXTS[0], TEXTS) + served.matches(TEXTS[1], TEXTS[:2], activation="sigmoid")
    outputs = served.model.run(jobs)

    assert np.abs(np.array([o.score for o in outputs[: len(TEXTS)]]) - expected.numpy()).max() <= 1e-4
    raw = served.score(TEXTS[1], TEXTS[:2])
    bounded = [output.score for output in outputs[len(TEXTS) :]]
    assert bounded == pytest.approx([1 / (1 + math.exp(-score)) for score in raw], abs=1e-6)
    assert jobs[0].cost == jobs[0].usage.input_tokens == len(TEXTS[0].split()) * 2 + 5


@pytest.mark.parametrize(
    ("module", "said"),
    [("CNN", "is a CNN"), ("WordEmbeddings", "begins with a WordEmbeddings"), ("../elsewhere", "outside")],
)
def test_what_cannot_be_served_is_refused_by_name(module: str, said: str, bert: Path, tmp_path: Path):
    kinds = [["x", f"somewhere.{module}"]] if module == "WordEmbeddings" else [["", "x.Transformer"]]
    kinds += [[module if "." in module else "1_Odd", f"somewhere.{module}"]]
    modules = [{"path": path, "type": kind} for path, kind in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(modules))

    with pytest.raises(weights.BadWeights, match=said):
        Served(tmp_path)


def test_heads_that_are_pickles_are_refused_with_what_is_wanted(tmp_path: Path):
    path = saved(FAMILIES["xlm-roberta"](), tmp_path)
    (path / "sparse_linear.pt").write_bytes(b"\x80")

    with pytest.raises(weights.BadWeights, match=r"sparse_linear\.safetensors"):
        Served(path, outputs=("dense", "sparse"))


def test_profiles_that_differ_in_options_share_weights_and_batches(bert: Path):
    profiles = {"short": {"options": {"dimensions": 8, "pooling": "cls"}}}
    served = Served(bert, pooling="mean", matryoshka=(8,), profiles=profiles)
    short = family("text_encoder").preparer(served.spec.profiled("short"), bert)
    own = served.prepare(TEXTS[:1]) + short.prepare(Task.ENCODE, [Item(text=TEXTS[0])], EncodeOptions())

    whole, cut = served.model.run(own)

    assert served.spec.unit("short") == served.spec.unit()
    assert (whole.dense.shape, cut.dense.shape) == ((32,), (8,))
    expected = Served(bert, pooling="cls").encode(TEXTS[:1])[0].dense[:8]
    assert np.abs(cut.dense - expected / np.linalg.norm(expected)).max() <= 1e-6
