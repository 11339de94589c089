"""GTE encoders compute what NomicBert does with the same weights: the same blocks under other names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf

from engine.adapters.forward import gte
from engine.requests import Task
from tests.engine.adapters.tiny_texts import SMALL, TEXTS, Served, saved

FAMILIAR = {**SMALL, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
RENAMED = {
    "layers.": "encoder.layer.",
    "self_attn.o_proj": "attention.o_proj",
    "post_attention_layernorm": "attn_ln",
    "post_mlp_layernorm": "mlp_ln",
}


def of_nomic(nomic: tf.PreTrainedModel, model: tf.PreTrainedModel) -> None:
    """The weights of one in the other; what only GTE has, its biases, is zero."""
    found = dict(nomic.state_dict())
    tensors: dict[str, torch.Tensor] = {}
    for number in range(SMALL["num_hidden_layers"]):
        old, new = f"layers.{number}.", f"encoder.layer.{number}."
        parts = [found.pop(f"{old}self_attn.{name}_proj.weight") for name in "qkv"]
        tensors[f"{new}attention.qkv_proj.weight"] = torch.cat(parts)
        up, gate = (found.pop(f"{old}mlp.{name}_proj.weight") for name in ("up", "gate"))
        tensors[f"{new}mlp.up_gate_proj.weight"] = torch.cat([up, gate])
    for name, tensor in found.items():
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        tensors[name] = tensor
    zeros = {name: torch.zeros_like(t) for name, t in model.state_dict().items() if name not in tensors}
    assert all(name.endswith("bias") for name in zeros)
    model.load_state_dict({name: t for name, t in (tensors | zeros).items() if name in model.state_dict()})


@pytest.fixture
def nomic() -> tf.PreTrainedModel:
    torch.manual_seed(0)
    kind = tf.CONFIG_MAPPING["nomic_bert"]
    rope = {"rope_type": "default", "rope_theta": 500.0}
    made = tf.AutoModel.from_config(kind(**FAMILIAR, rope_parameters=rope, initializer_range=0.3))
    return made.eval()


@pytest.mark.parametrize("kind", [gte.GteModel, gte.SnowflakeModel])
def test_vectors_are_those_of_the_same_network_under_other_names(
    kind: type[gte.GteModel], nomic: tf.PreTrainedModel, tmp_path: Path, compared: Callable[..., None]
):
    path = saved(tf.BertConfig(**SMALL), tmp_path)  # for its tokenizer
    model = kind(kind.config_class(**FAMILIAR, rope_theta=500.0)).eval()
    of_nomic(nomic, model)
    model.save_pretrained(path)
    served = Served(path, pooling="cls", normalize=False)

    jobs = served.prepare(TEXTS)
    found = np.stack([output.dense for output in served.model.run(jobs)])

    with torch.inference_mode():
        rows = [nomic(torch.from_numpy(job.payload.ids).long()[None]).last_hidden_state[0, 0] for job in jobs]
    expected = torch.stack(rows).numpy()
    assert np.abs(found - expected).max() <= 1e-4
    alone = [served.model.run([job])[0].dense for job in jobs]
    name = f"tiny GTE, {kind.config_class.model_type}"
    compared("text_encoder", name, "transformers' NomicBert", found, expected, alone)


@pytest.mark.parametrize(
    ("mixed", "last"), [(None, 1 / (500.0 * 2) ** (14 / 16) / 2 ** (2 / 16)), (0.6, None)]
)
def test_longer_contexts_turn_more_slowly(mixed: float | None, last: float | None):
    scaling = {"type": "ntk", "factor": 2.0, "mixed_b": mixed}
    plain = gte._frequencies(gte.GteConfig(**FAMILIAR, rope_theta=500.0), torch.device("cpu"))
    config = gte.GteConfig(**FAMILIAR, rope_theta=500.0, rope_scaling=scaling)

    found = gte._frequencies(config, torch.device("cpu"))

    assert (found < plain).all()
    # by theory, the slowest turns exactly `factor` times more slowly
    assert float(found[-1]) == pytest.approx(float(plain[-1]) / 2 if last is None else last, rel=1e-5)


def test_a_reranker_has_its_pooler_and_one_number(tmp_path: Path):
    torch.manual_seed(0)
    path = saved(tf.BertConfig(**SMALL), tmp_path)
    config = gte.GteConfig(**FAMILIAR, num_labels=1, initializer_range=0.3)
    model = gte.GteForSequenceClassification(config).eval()
    model.save_pretrained(path)
    reranker = Served(path, family="cross_encoder", tasks=(Task.SCORE,))

    jobs = reranker.matches("w1 w2", TEXTS)
    scores = [output.score for output in reranker.model.run(jobs)]

    with torch.inference_mode():
        for job, score in zip(jobs, scores, strict=True):
            pair = job.payload.pair
            ids, types = (torch.from_numpy(each).long()[None] for each in (pair.ids, pair.types))
            first = model.new(ids, token_type_ids=types).last_hidden_state
            assert float(model.classifier(model.new.pooler(first))) == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_words_are_scored_as_published_and_become_sparse_vectors(tied: bool, tmp_path: Path):
    """`NewForMaskedLM` of Alibaba's `modeling.py`: dense, activation, norm, then the vocabulary."""
    torch.manual_seed(0)
    path = saved(tf.BertConfig(**SMALL), tmp_path)
    config = gte.GteConfig(**FAMILIAR, initializer_range=0.3, tie_word_embeddings=tied)
    model = gte.GteForMaskedLM(config).eval()
    model.save_pretrained(path)
    options = {"sparse_activation": "log1p_relu"}
    served = Served(path, outputs=("sparse",), tasks=(Task.ENCODE,), options=options)

    jobs = served.prepare(TEXTS)
    found = [output.sparse for output in served.model.run(jobs)]

    state = model.state_dict()
    words = state["new.embeddings.word_embeddings.weight" if tied else "lm_head.decoder.weight"]
    with torch.inference_mode():
        for job, sparse in zip(jobs, found, strict=True):
            states = model.new(torch.from_numpy(job.payload.ids).long()[None]).last_hidden_state[0]
            rows = torch.nn.functional.gelu(
                states @ state["lm_head.dense.weight"].T + state["lm_head.dense.bias"]
            )
            rows = torch.nn.functional.layer_norm(
                rows, (32,), state["lm_head.norm.weight"], state["lm_head.norm.bias"], 1e-12
            )
            scores = rows @ words.T + state["lm_head.decoder.bias"]
            expected = torch.log1p(torch.log1p(torch.relu(scores.amax(0)))).numpy()
            row = np.zeros(sparse.dims, np.float32)
            row[sparse.indices] = sparse.values
            assert np.abs(row - expected).max() <= 1e-5
