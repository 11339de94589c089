"""Zero-shot classification by inference, beside transformers' own pipeline on tiny random models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as tf

from engine.adapters.forward.weights import BadWeights
from engine.adapters.zero_shot import FAMILY
from engine.entry import ModelSpec, Source
from engine.errors import InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Item, Overflow, Task
from tests.engine.adapters.tiny_tokenizer import tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

TEXTS = ["the word on the person", "Ulm in an word", "a place", "the date " * 30]
MEANINGS = ("contradiction", "neutral", "entailment")
NLI = {"id2label": dict(enumerate(MEANINGS)), "label2id": {label: i for i, label in enumerate(MEANINGS)}}
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
CONFIGS = {
    "bert": (tf.BertConfig, SIZE),
    "roberta": (tf.RobertaConfig, SIZE | {"type_vocab_size": 1, "max_position_embeddings": 200}),
    "deberta": (tf.DebertaV2Config, SIZE | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "modernbert": (tf.ModernBertConfig, SIZE | {"global_attn_every_n_layers": 2, "local_attention": 8}),
    "bart": (
        tf.BartConfig,
        {
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 200,
        },
    ),
}
MARKS = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    def folder(kind: str, **more: object):
        path = tmp_path_factory.mktemp(kind)
        tokenizer(path)
        made, size = CONFIGS[kind]
        vocabulary = len(tf.AutoTokenizer.from_pretrained(path))
        marks = {**MARKS, **({"decoder_start_token_id": 3} if kind == "bart" else {})}
        config = made(vocab_size=vocabulary, **(marks | size | NLI | more))
        torch.manual_seed(1)
        model = tf.AutoModelForSequenceClassification.from_config(config)
        for parameter in model.parameters():  # far from alike, so that a mistake shows
            parameter.data.mul_(4) if parameter.dim() > 1 else None
        model.save_pretrained(path)
        return path

    return folder


def spec(path, **more: object) -> ModelSpec:
    given = {"id": "a/b", "family": "zero_shot", "tasks": ("extract",), "devices": ("cpu",)}
    return ModelSpec(**given, sources=(Source(directory=str(path)),), **more)


def extract(path, texts, labels, **options):
    entry = spec(path, **options.pop("entry", {}))
    jobs = FAMILY.preparer(entry, path).prepare(
        Task.EXTRACT, [Item(text=text) for text in texts], ExtractOptions(labels=labels, **options)
    )
    model = FAMILY.load(entry, path, "cpu")
    return model.run(jobs), jobs, model


@pytest.mark.parametrize("kind", CONFIGS)
def test_chances_are_those_of_the_reference_pipeline(kind, folder, compared):
    path = folder(kind)
    marks = tf.AutoTokenizer.from_pretrained(path)
    marks.model_max_length = 200
    if kind == "bert":  # as its own tokenizer class has it
        marks.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    reference = tf.pipeline(
        "zero-shot-classification",
        model=tf.AutoModelForSequenceClassification.from_pretrained(path),
        tokenizer=marks,
        device="cpu",
    )
    labels = ("person", "place", "date and word")

    seen = []
    for multi in (False, True):
        ours, _, _ = extract(path, TEXTS, labels, extra={"multi_label": multi})
        for text, answer in zip(TEXTS, ours, strict=True):
            theirs = reference(text, list(labels), multi_label=multi)
            assert [c.label for c in answer.classifications] == theirs["labels"]
            assert np.allclose([c.score for c in answer.classifications], theirs["scores"], atol=1e-5)
            seen.append(([c.score for c in answer.classifications], theirs["scores"]))
    compared("zero_shot", f"tiny {kind}", "transformers", *zip(*seen, strict=True))


def test_texts_with_other_labels_and_templates_share_a_batch_and_stay_what_they_are_alone(folder):
    path = folder("bert")
    entry = spec(path)
    preparer, model = FAMILY.preparer(entry, path), FAMILY.load(entry, path, "cpu")
    asked = [("person",), ("place", "date"), ("word", "person", "an")]
    jobs = [
        preparer.prepare(
            Task.EXTRACT,
            [Item(text=text)],
            ExtractOptions(labels=labels, extra={"hypothesis_template": "the {} word"}),
        )[0]
        for labels in asked
        for text in TEXTS
    ]

    for together, job in zip(model.run(jobs), jobs, strict=True):
        (alone,) = model.run([job])
        ours, theirs = ([(c.label, c.score) for c in a.classifications] for a in (together, alone))
        assert [label for label, _ in ours] == [label for label, _ in theirs]
        assert np.allclose([s for _, s in ours], [s for _, s in theirs], atol=1e-6)


def test_a_threshold_leaves_out_what_is_less_likely_and_an_entry_names_labels(folder):
    entry = {"labels": {"Who": "person|name"}}

    all_of_them, _, _ = extract(folder("bert"), TEXTS[:1], (), entry=entry)
    (kept,), _, _ = extract(folder("bert"), TEXTS[:1], ("Who", "place"), entry=entry, threshold=1.0)

    assert [c.label for c in all_of_them[0].classifications] == ["Who"]
    assert kept.classifications == ()


def test_a_long_text_is_refused_cut_or_read_in_windows_as_asked(folder):
    path = folder("bert", max_position_embeddings=40)
    long = "the word " * 60

    whole, (job,), _ = extract(path, [long], ("place",), overflow=Overflow.WINDOW)
    _, (cut,), _ = extract(path, [long], ("place",), overflow=Overflow.TRUNCATE)
    refused = FAMILY.preparer(spec(path), path).prepare(
        Task.EXTRACT, [Item(text=long)], ExtractOptions(labels=("place",), overflow=Overflow.ERROR)
    )

    assert len(job.payload.pairs) > 1
    assert max(len(pair.ids) for pair in job.payload.pairs) <= 40
    assert 0 <= whole[0].classifications[0].score <= 1
    assert len(cut.payload.pairs) == 1
    assert cut.usage.truncated == 1
    assert isinstance(refused[0], InputTooLong)


@pytest.mark.parametrize(
    "options",
    [
        ExtractOptions(),
        ExtractOptions(labels=("",)),
        ExtractOptions(labels=("a",), output_schema={"x": 1}),
        ExtractOptions(labels=("a",), extra={"hypothesis_template": "no place"}),
        ExtractOptions(labels=("a",), extra={"multi_label": 1}),
        ExtractOptions(labels=("a",), extra={"thresholds": {"a": 2}}),
    ],
)
def test_options_that_cannot_be_followed_are_refused(options, folder):
    path = folder("bert")

    with pytest.raises(InvalidInput):
        FAMILY.preparer(spec(path), path).prepare(Task.EXTRACT, [Item(text="a")], options)


def test_a_classifier_without_an_entailment_is_no_model_of_this_family(folder):
    path = folder("bert", id2label={0: "bad", 1: "good", 2: "so so"})

    with pytest.raises(BadWeights, match="entailment"):
        FAMILY.load(spec(path), path, "cpu")
