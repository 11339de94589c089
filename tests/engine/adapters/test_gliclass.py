"""GLiClass beside the library's own pipeline, on tiny random models of its own configuration class."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers as tf

from engine.adapters.forward.weights import BadWeights
from engine.errors import InputTooLong, InvalidInput
from engine.requests import Overflow
from tests.engine.adapters.extracting import Extracting, alike, classes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tests.engine.adapters import tiny_gliclass as tiny

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

TEXTS = ["the word on the person", "Ulm in an word", "a", "the date " * 30]
LABELS = ("person", "place", "date and word")
FIRST = {"prompt_first": True}
CACHED = {"architecture_type": "decoder-kv", "scorer_mlp_hidden_size": 64}
KINDS: dict[str, dict[str, Any]] = {
    "plain": FIRST,
    "text first": {"prompt_first": False, "scorer_type": "weighted-dot"},
    "average": {**FIRST, "class_token_pooling": "average", "pooling_strategy": "avg"},
    "normal": {**FIRST, "normalize_features": True, "extract_text_features": True},
    "lstm": {**FIRST, "use_lstm": True, "scorer_type": "mlp", "embed_class_token": False},
    "layer-wise": {**FIRST, "layer_wise": True, "scorer_type": "hopfield"},
    "segments": {**FIRST, "use_segment_embeddings": True},
    "modernbert, calibrated": {**FIRST, "backbone": "modernbert", "use_calibrator": True},
    "t5": {**FIRST, "backbone": "t5"},
    "labels apart": {"architecture_type": "bi-encoder", "normalize_features": True},
    "labels apart, calibrated": {"architecture_type": "bi-encoder", "use_calibrator": True},
    "labels in the text": {**FIRST, "architecture_type": "bi-encoder-fused"},
    "labels behind the text": {"architecture_type": "bi-encoder-fused", "backbone": "modernbert"},
    "decoded": {
        "architecture_type": "encoder-decoder",
        "backbone": "t5",
        "normalize_features": True,
        "pooling_strategy": "avg",
        "use_lstm": True,
    },
    "text decoded": {"architecture_type": "encoder-decoder-cls", "backbone": "bart"},
    "cached": {**CACHED, "backbone": "qwen"},
    "cached, recurrent": {
        **CACHED,
        "backbone": "hybrid",
        "recurrent_steps": 3,
        "recurrent_read_text": True,
        "use_calibrator": True,
        "calibrator_use_bias": True,
    },
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Extracting]:
    found: dict[str, Extracting] = {}

    def served(name: str) -> Extracting:
        if name not in found:
            config = dict(KINDS[name])
            path = tiny.made(tmp_path_factory.mktemp("gliclass"), config.pop("backbone", "deberta"), **config)
            found[name] = Extracting("gliclass", path, overflow="truncate_text")
        return found[name]

    return served


@pytest.mark.parametrize("name", KINDS)
def test_chances_are_those_of_the_reference_pipeline(name, served, compared):
    model = served(name)
    reference = tiny.pipeline(model.path)
    told: list[tuple[float, float]] = []

    for multi, kind, prompt in [(True, "multi-label", None), (False, "single-label", "the word:")]:
        options = {"threshold": 0.0, "instruction": prompt, "extra": {"multi_label": multi}}
        for text, answer in zip(TEXTS, model.answers(TEXTS, LABELS, **options), strict=True):
            (theirs,) = reference(
                [text], list(LABELS), threshold=0.0, classification_type=kind, prompt=prompt
            )
            found = classes(answer)
            assert list(found.values()) == sorted(found.values(), reverse=True)
            expected = {said["label"]: said["score"] for said in theirs}
            told += alike({label: found[label] for label in expected}, expected, 1e-5)
    assert max(score for _, score in told) - min(score for _, score in told) > 0.01
    compared("gliclass", f"tiny {name}", "gliclass", *zip(*told, strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_texts_with_other_labels_share_a_batch_and_stay_what_they_are_alone(name, served):
    model = served(name)
    asked = [LABELS[: 1 + i % 3] for i in range(12)]
    jobs = [model.jobs([TEXTS[i % 4]], labels, threshold=0.0)[0] for i, labels in enumerate(asked)]

    for together, alone in model.with_company(jobs):
        alike(classes(together), classes(alone), 1e-5)


def test_of_a_long_text_only_the_text_is_cut_or_read_in_windows(served):
    model = served("plain").saying(max_tokens=48)
    long = "the word " * 60

    (windows,) = model.jobs([long], LABELS, overflow=Overflow.WINDOW)
    (cut,) = model.jobs([long], LABELS, overflow=Overflow.TRUNCATE)
    (refused,) = model.jobs([long], LABELS, overflow=Overflow.ERROR)

    marker = int(tf.AutoTokenizer.from_pretrained(model.path).convert_tokens_to_ids("<<LABEL>>"))
    assert [window.ids.tolist().count(marker) for window in windows.payload.windows] == (
        [len(LABELS)] * len(windows.payload.windows)
    )
    assert len(windows.payload.windows) > 1
    assert max(len(window.ids) for window in windows.payload.windows) <= 48
    assert (len(cut.payload.windows), cut.usage.truncated) == (1, 1)
    assert isinstance(refused, InputTooLong)
    assert all(0 <= score <= 1 for score in classes(model.model.run([windows])[0]).values())


@pytest.mark.parametrize("name", ["text first", "labels apart", "decoded", "cached"])
def test_a_window_of_a_long_text_is_the_part_of_it_alone(name, served):
    model = served(name).saying(max_tokens=64)
    words = ["the", "word", "on", "in", "an"] * 30

    (job,) = model.jobs([" ".join(words)], ("person",), overflow=Overflow.WINDOW)

    assert len(job.payload.windows) > 1
    assert sum(job.payload.lengths) > len(words)
    assert max(len(window.ids) for window in job.payload.windows) <= 64


def test_more_labels_than_a_model_was_trained_with_are_all_judged(served):
    for name in ("decoded", "text decoded", "labels in the text"):
        labels = [f"label {n}" for n in range(40)]
        found = classes(served(name).find("the word", *labels, threshold=0.0))
        assert found.keys() == {*labels}


def test_vectors_of_labels_are_read_once(served):
    model = served("labels apart")
    read: list[int] = []
    known = model.model._network._known
    before, known._read = known._read, lambda labels: read.append(len(labels)) or before(labels)

    for labels in [("one", "two"), ("two", "one"), ("two", "three")]:
        model.answers(TEXTS[:2], labels)

    assert read == [2, 1]
    known._read = before


def test_labels_that_leave_no_room_are_refused_and_so_is_none_at_all(served):
    many = tuple(f"label {i}" for i in range(40))

    for name in ("plain", "decoded", "cached"):
        with pytest.raises(InputTooLong):
            served(name).saying(max_tokens=48).jobs(["a"], many)
    with pytest.raises(InputTooLong) as refused:
        served("plain").saying(max_tokens=48).jobs(["a"], many)
    assert f" {refused.value.details['max_length']} are for them." in refused.value.message
    with pytest.raises(InputTooLong):
        served("labels apart").jobs(["a"], ("w " * 600,))
    with pytest.raises(InvalidInput, match="labels"):
        served("plain").jobs(["a"])


def test_the_models_own_markers_are_refused_where_they_would_be_taken_for_labels(served):
    with pytest.raises(InvalidInput, match="<<LABEL>>"):
        served("plain").jobs(["a"], ("a<<LABEL>>b",))
    with pytest.raises(InvalidInput, match="<<SEP>>"):
        served("cached").jobs(["a"], ("a",), instruction="<<SEP>>")

    wrong, good = served("text first").jobs(["the <<LABEL>> word", "word"], ("person",))

    assert (type(wrong), wrong.item) == (InvalidInput, 0)
    assert served("text first").model.run([good])[0].classifications


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"architecture_type": "mixture"}, "architecture mixture"),
        ({"multimodal": True}, "images"),
        ({"encoder_layer_id": 1}, "another layer"),
    ],
)
def test_a_form_that_does_not_run_here_is_refused_by_name(wrong, named, served, tmp_path: Path):
    config = json.loads((served("plain").path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | wrong))

    with pytest.raises(BadWeights, match=named):
        served("plain").family.footprint(served("plain").spec, tmp_path)
