from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from engine.adapters.text_classifier import FAMILY
from engine.catalog import ModelSpec, Source
from engine.errors import InferenceFailed, InputTooLong, InvalidInput
from engine.requests import Extracted, ExtractOptions, Item, Media, Overflow, Task

WORDS = [f"w{i}" for i in range(60)]
TEXTS = ["w1 w2 w3", "w7", "", "w5 w5 w9 w11 w40 w3 w2 w1", "w1 w2 w4"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
LABELS = {"id2label": {0: "calm", 1: "ALARM", 2: "other"}, "label2id": {"calm": 0, "ALARM": 1, "other": 2}}
COMMON = {
    "vocab_size": 64,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "initializer_range": 0.3,
    **LABELS,
}
CONFIGS = [
    tf.BertConfig(**SIZES, **COMMON),
    tf.RobertaConfig(**SIZES, **COMMON),
    tf.DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=64, **COMMON),
    tf.DebertaV2Config(**SIZES, **COMMON, relative_attention=True, pos_att_type=["c2p", "p2c"]),
]
SPEC = ModelSpec(
    id="tests/classifier",
    family="text_classifier",
    tasks=(Task.EXTRACT,),
    labels={"calmness": "calm"},
    max_tokens=16,
    sources=(Source(directory="."),),
)


def directory(path: Path, config: tf.PreTrainedConfig) -> Path:
    """A model of random weights, and a tokenizer whose words are w0 to w59."""
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit of DeBERTa is deprecated
        tf.AutoModelForSequenceClassification.from_config(config).save_pretrained(path)
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def chances(extracted: Extracted) -> list[float]:
    scores = {c.label: c.score for c in extracted.classifications}
    return [scores[label] for label in ("calm", "ALARM", "other")]


def classify(path: Path, texts: list[str], spec: ModelSpec = SPEC, **options: object) -> list[Extracted]:
    items = [Item(text=text) for text in texts]
    jobs = FAMILY.preparer(spec, path).prepare(Task.EXTRACT, items, ExtractOptions(**options))
    model = FAMILY.load(spec, path, "cpu")
    answers = model.run(jobs)
    model.unload()
    return answers


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    torch.set_num_threads(1)
    return directory(tmp_path_factory.mktemp("bert"), CONFIGS[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
@pytest.mark.parametrize(
    "problem", ["single_label_classification", "multi_label_classification", "regression"]
)
def test_scores_are_those_of_the_reference(config, problem, tmp_path, compared):
    config = config.__class__.from_dict({**config.to_dict(), "problem_type": problem})
    path = directory(tmp_path, config)
    reference = tf.AutoModelForSequenceClassification.from_pretrained(path).eval()
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))

    seen = []
    for text, answer in zip(TEXTS, classify(path, TEXTS), strict=True):
        with torch.inference_mode():
            logits = reference(input_ids=torch.tensor([tokenizer.encode(text).ids])).logits[0]
        expected = {"s": logits.softmax(-1), "m": logits.sigmoid(), "r": logits}[problem[0]]
        assert np.allclose(chances(answer), expected.numpy(), atol=1e-5)
        seen.append((chances(answer), expected.numpy(), chances(classify(path, [text])[0])))
    name = f"tiny {config.model_type}, {problem}"
    compared("text_classifier", name, "transformers", *zip(*seen, strict=True))


def test_classes_come_likeliest_first_under_the_name_that_was_asked(bert):
    (answer,) = classify(bert, ["w1 w2 w3"], labels=("Calmness", "other"))
    scores = [c.score for c in answer.classifications]

    assert {c.label for c in answer.classifications} == {"Calmness", "other"}
    assert scores == sorted(scores, reverse=True)
    with pytest.raises(InvalidInput, match="'x'; it can give: ALARM, calm, calmness, other"):
        classify(bert, ["w1"], labels=("x",))


def test_a_long_text_is_the_mean_of_its_windows_or_the_most_alarming_one(bert):
    windowed = SPEC.model_copy(update={"overflow": "window"})
    guard = windowed.model_copy(update={"options": {"alarm": "ALARM"}})
    text = " ".join(WORDS[:14] + WORDS[20:32])
    # fourteen words fit; twenty-six are read from 0, 6 and 12
    words = text.split()
    parts = [" ".join(words[at : at + 14]) for at in (0, 6, 12)]
    alone = np.array([chances(answer) for answer in classify(bert, parts)])

    (mean,) = classify(bert, [text], windowed)
    (alarmed,) = classify(bert, [text], guard)

    assert np.allclose(chances(mean), alone.mean(0), atol=1e-5)
    assert np.allclose(chances(alarmed), alone[alone[:, 1].argmax()], atol=1e-5)


def test_a_long_text_is_cut_or_refused_as_the_entry_or_the_request_says(bert):
    preparer = FAMILY.preparer(SPEC, bert)
    items = [Item(text=" ".join(WORDS)), Item(images=(Media(b""),))]

    cut, bad = preparer.prepare(Task.EXTRACT, items, ExtractOptions())
    refused, _ = preparer.prepare(Task.EXTRACT, items, ExtractOptions(overflow=Overflow.ERROR))

    assert (cut.cost, cut.usage.input_tokens, cut.usage.truncated) == (16, 16, 1)
    assert (type(refused), refused.item) == (InputTooLong, 0)
    assert (type(bad), bad.item) == (InvalidInput, 1)


def test_a_score_that_is_no_number_fails_its_job(bert):
    model = FAMILY.load(SPEC, bert, "cpu")
    model._model.get_input_embeddings().weight[4 + 7] = torch.nan
    items = [Item(text="w1 w7"), Item(text="w1 w2 w3")]

    failed, fine = model.run(FAMILY.preparer(SPEC, bert).prepare(Task.EXTRACT, items, ExtractOptions()))

    assert isinstance(failed, InferenceFailed)
    assert chances(fine) == pytest.approx(chances(classify(bert, ["w1 w2 w3"])[0]), abs=1e-6)


def test_the_footprint_knows_the_weights(bert):
    stored = json.loads((bert / "config.json").read_text())

    assert stored["model_type"] == "bert"
    parameters = tf.AutoModelForSequenceClassification.from_pretrained(bert).num_parameters()
    assert FAMILY.footprint(SPEC, bert).weights_bytes == 4 * parameters


def test_raw_scores_are_what_the_chances_are_made_of(bert):
    (raw,) = classify(bert, ["w1 w2 w3"], extra={"raw_scores": True})
    (plain,) = classify(bert, ["w1 w2 w3"], extra={"raw_scores": False})

    scores = np.array(chances(raw))
    assert np.allclose(np.exp(scores) / np.exp(scores).sum(), chances(plain), atol=1e-5)
    assert not np.allclose(scores, chances(plain), atol=1e-3)
    with pytest.raises(InvalidInput, match="raw_scores is true or false"):
        classify(bert, ["w1"], extra={"raw_scores": "yes"})
