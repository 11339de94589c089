from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.forward import gte, heads, own, packed
from engine.adapters.forward.nomic_moe import NomicMoeConfig
from engine.adapters.forward.packed import Encoder
from engine.adapters.forward.packing import WASTE, Layout, buckets

# DeBERTa compiles small functions on first use
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

SMALL = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
}
GQA = {**SMALL, "num_key_value_heads": 2}
DISTIL = {"vocab_size": 1000, "dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 128}
MODERN = {**SMALL, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}
DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}

PACKED = {
    "albert": lambda: tf.AlbertConfig(**SMALL, embedding_size=32),
    "bert": lambda: tf.BertConfig(**SMALL),
    "camembert": lambda: tf.CamembertConfig(**SMALL),
    "distilbert": lambda: tf.DistilBertConfig(**DISTIL),
    "electra": lambda: tf.ElectraConfig(**SMALL, embedding_size=32),
    "ernie": lambda: tf.ErnieConfig(**SMALL),
    "eurobert": lambda: tf.EuroBertConfig(**GQA),
    "gemma": lambda: tf.GemmaConfig(**GQA, head_dim=16),
    "gemma3_text": lambda: tf.Gemma3TextConfig(**GQA, head_dim=16, sliding_window=8),
    "gte": lambda: gte.SnowflakeConfig(**SMALL, type_vocab_size=1),
    "jina_embeddings_v3": lambda: tf.CONFIG_MAPPING["jina_embeddings_v3"](**SMALL),
    "llama": lambda: tf.LlamaConfig(**GQA),
    "mistral": lambda: tf.MistralConfig(**GQA, sliding_window=6),
    "modernbert": lambda: tf.ModernBertConfig(**MODERN),
    "new": lambda: gte.GteConfig(**SMALL, type_vocab_size=1, rope_scaling={"type": "ntk", "factor": 2.0}),
    "nomic_bert": lambda: tf.CONFIG_MAPPING["nomic_bert"](**SMALL),
    "nomic_moe": lambda: NomicMoeConfig(**SMALL, num_experts=4),
    "qwen2": lambda: tf.Qwen2Config(**GQA),
    "qwen3": lambda: tf.Qwen3Config(**GQA, head_dim=16),
    "roberta": lambda: tf.RobertaConfig(**SMALL),
    "xlm-roberta": lambda: tf.XLMRobertaConfig(**SMALL),
}
PADDED = {
    "deberta": lambda: tf.DebertaConfig(**SMALL, **DEBERTA),
    "deberta-v2": lambda: tf.DebertaV2Config(**SMALL, **DEBERTA),
    "mpnet": lambda: tf.MPNetConfig(**SMALL),
}
BY_PUBLISHED_ARITHMETIC = {"jina_bert"}
"""No library runs it one by one: `test_published.py` compares it with what is written out there."""
LENGTHS = [12, 33, 1, 7, 70, 12, 2]


own.register()


def tiny(config: tf.PretrainedConfig, auto: type = tf.AutoModel) -> tf.PreTrainedModel:
    torch.manual_seed(0)
    return auto.from_config(config).eval()


def sequences(lengths: list[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(len(lengths))
    return [rng.integers(5, 999, n).astype(np.int32) for n in lengths]


@torch.inference_mode()
def alone(model: tf.PreTrainedModel, ids: np.ndarray, **inputs: torch.Tensor) -> torch.Tensor:
    return model(input_ids=torch.from_numpy(ids).long()[None], **inputs).last_hidden_state[0]


@pytest.mark.parametrize("family", [*PACKED, *PADDED])
def test_a_sequence_gives_the_same_alone_and_among_others(family: str):
    model = tiny((PACKED | PADDED)[family]())
    inputs = sequences(LENGTHS)
    expected = [alone(model, ids) for ids in inputs]

    encoder = Encoder(model)
    hidden = encoder.hidden(inputs)

    assert encoder.packed == (family in PACKED)
    for i, states in enumerate(expected):
        assert hidden.of(i).shape == states.shape
        assert (hidden.of(i) - states).abs().max() <= 1e-5


def test_every_family_in_the_table_is_one_of_those_tested():
    assert set(PACKED) | BY_PUBLISHED_ARITHMETIC == packed.PACKED


def test_more_tokens_than_one_forward_takes_are_run_in_several():
    model = tiny(PACKED["bert"]())
    inputs = sequences([300, 5, 500, 400, 30, 500, 17])
    expected = [alone(model, ids) for ids in inputs]

    hidden = Encoder(model).hidden(inputs)

    assert hidden.layout.tokens > packed.CHUNK["cpu"]
    for i, states in enumerate(expected):
        assert (hidden.of(i) - states).abs().max() <= 1e-5


BIDIRECTIONAL = {
    "gemma3_text": lambda: tf.Gemma3TextConfig(
        **GQA, head_dim=16, sliding_window=8, use_bidirectional_attention=True
    ),
    "qwen2": lambda: tf.Qwen2Config(**GQA, is_causal=False),
    "qwen3": lambda: tf.Qwen3Config(**GQA, head_dim=16, is_causal=False),
}


@pytest.mark.parametrize("family", list(BIDIRECTIONAL))
def test_a_decoder_that_looks_both_ways_does_so_among_others(family: str):
    model = tiny(BIDIRECTIONAL[family]())
    causal = tiny(PACKED[family]())
    inputs = sequences(LENGTHS)
    expected = [alone(model, ids) for ids in inputs]

    hidden = Encoder(model).hidden(inputs)

    for i, states in enumerate(expected):
        assert (hidden.of(i) - states).abs().max() <= 1e-5
    assert (Encoder(causal).hidden(inputs).of(0)[0] - expected[0][0]).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["bert", "modernbert", "mpnet", "roberta"])
def test_tokens_that_nobody_attends_to_have_states_and_change_none(family: str):
    model = tiny((PACKED | PADDED)[family]())
    inputs, seen = sequences([12, 33, 12, 33, 9]), [7, 20, 12, 33, 4]
    expected = []
    for ids, first in zip(inputs, seen, strict=True):
        mask = (torch.arange(len(ids)) < first).long()[None]
        expected.append(alone(model, ids, attention_mask=mask))

    hidden = Encoder(model).hidden(inputs, seen=seen)

    for i, states in enumerate(expected):
        assert (hidden.of(i) - states).abs().max() <= 1e-5


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_a_neighbour_that_is_not_a_number_harms_nobody(family: str):
    model = tiny((PACKED | PADDED)[family]())
    inputs = sequences(LENGTHS)
    inputs[3][2] = 4
    expected = [alone(model, ids) for ids in inputs]
    model.get_input_embeddings().weight.data[4] = torch.nan

    hidden = Encoder(model).hidden(inputs)

    assert hidden.of(3).isnan().any()
    for i in (0, 1, 2, 4, 5, 6):
        assert (hidden.of(i) - expected[i]).abs().max() <= 1e-5


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_token_types_go_with_their_tokens(family: str):
    config = (PACKED | PADDED)[family]()
    config.type_vocab_size = 2
    model = tiny(config)
    inputs = sequences([9, 4, 9])
    types = [np.array([0] * (len(ids) // 2) + [1] * (len(ids) - len(ids) // 2), np.int32) for ids in inputs]
    expected = [
        alone(model, ids, token_type_ids=torch.from_numpy(kinds).long()[None])
        for ids, kinds in zip(inputs, types, strict=True)
    ]

    hidden = Encoder(model).hidden(inputs, types)

    for i, states in enumerate(expected):
        assert (hidden.of(i) - states).abs().max() <= 1e-5


def with_labels(config: tf.PretrainedConfig, labels: int) -> tf.PretrainedConfig:
    config.num_labels = labels
    return config


@pytest.mark.parametrize(
    "family", [name for name in heads.CLASSIFIERS if name not in ("gte", "jina_bert", "new")]
)
def test_a_sequence_classifier_answers_as_its_library_does(family: str):
    model = tiny(with_labels((PACKED | PADDED)[family](), 3), tf.AutoModelForSequenceClassification)
    inputs = sequences([12, 5, 12])
    with torch.inference_mode():
        expected = torch.cat([model(input_ids=torch.from_numpy(ids).long()[None]).logits for ids in inputs])

        logits = heads.sequence_logits(model, Encoder(model).hidden(inputs))

    assert (logits - expected).abs().max() <= 1e-5


@pytest.mark.parametrize("how", ["bos", "mean", "late"])
def test_a_eurobert_classifier_pools_as_its_configuration_says(how: str):
    config = with_labels(tf.EuroBertConfig(**GQA, classifier_pooling=how), 3)
    model = tiny(config, tf.AutoModelForSequenceClassification)
    inputs = sequences([12, 5])
    with torch.inference_mode():
        expected = torch.cat([model(input_ids=torch.from_numpy(ids).long()[None]).logits for ids in inputs])

        logits = heads.sequence_logits(model, Encoder(model).hidden(inputs))

    assert (logits - expected).abs().max() <= 1e-5


def test_a_modernbert_classifier_may_pool_by_mean():
    config = with_labels(tf.ModernBertConfig(**MODERN, classifier_pooling="mean"), 3)
    model = tiny(config, tf.AutoModelForSequenceClassification)
    inputs = sequences([12, 5])
    with torch.inference_mode():
        expected = torch.cat([model(input_ids=torch.from_numpy(ids).long()[None]).logits for ids in inputs])

        logits = heads.sequence_logits(model, Encoder(model).hidden(inputs))

    assert (logits - expected).abs().max() <= 1e-5


MASKED = [
    "albert",
    "bert",
    "camembert",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "ernie",
    "eurobert",
    "jina_embeddings_v3",
    "modernbert",
    "mpnet",
    "nomic_bert",
    "roberta",
    "xlm-roberta",
]


@pytest.mark.parametrize("family", MASKED)
def test_a_masked_language_model_answers_as_its_library_does(family: str):
    model = tiny((PACKED | PADDED)[family](), tf.AutoModelForMaskedLM)
    inputs = sequences([12, 5, 12])
    with torch.inference_mode():
        expected = [model(input_ids=torch.from_numpy(ids).long()[None]).logits[0] for ids in inputs]

        hidden = Encoder(model).hidden(inputs)
        logits = heads.token_logits(model, hidden.states)

    for i, scores in enumerate(expected):
        assert (logits[hidden.layout.rows(i)] - scores).abs().max() <= 1e-5


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 100))
def test_a_layout_holds_every_token_once_and_gives_each_sequence_back(lengths: list[int], budget: int):
    layout = Layout(lengths)
    rows = [layout.rows(i) for i in range(len(lengths))]

    taken = np.concatenate([np.arange(r.start, r.stop) for r in rows])
    chunks = list(layout.chunks(budget))
    firsts = layout.given(torch.from_numpy(layout.starts))

    assert sorted(taken.tolist()) == list(range(sum(lengths)))
    assert [r.stop - r.start for r in rows] == lengths
    assert [layout.positions()[r].tolist() for r in rows] == [list(range(n)) for n in lengths]
    assert firsts.tolist() == [r.start for r in rows]
    assert [p.start for p, _ in chunks] == [0, *(p.stop for p, _ in chunks[:-1])]
    assert chunks[-1][1].stop == sum(lengths)
    assert all(p.stop - p.start == 1 or r.stop - r.start <= budget for p, r in chunks)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60))
def test_buckets_pad_little_and_leave_nobody_out(lengths: list[int]):
    ascending = np.sort(np.array(lengths, np.int64))

    found = list(buckets(ascending, 1024))

    assert np.concatenate([ascending[b] for b in found]).tolist() == ascending.tolist()
    for bucket in found:
        inside = ascending[bucket]
        assert len(inside) == 1 or inside[-1] * len(inside) <= min(1024, WASTE * inside.sum())
