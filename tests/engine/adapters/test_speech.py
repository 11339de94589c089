from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from engine.adapters.family import Prepared
from engine.adapters.preparing import audio
from engine.adapters.speech_recognizer import FAMILY, SpeechRecognizer
from engine.catalog import Limits, ModelSpec, Source
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import Extracted, ExtractOptions, Item, Media, Task
from tests.engine.adapters.tiny_whisper import recording, save, sound

SPEC = ModelSpec(
    id="tiny/whisper",
    family="speech_recognizer",
    tasks=(Task.EXTRACT,),
    inputs=("audio",),
    sources=(Source(directory="/nowhere"),),
)
SHORT, OTHER, LONG, LONGER = sound(1.5, 1), sound(3, 2), sound(6, 3), sound(10, 4)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="module")
def model(path: Path) -> SpeechRecognizer:
    return FAMILY.load(SPEC, path, "cpu")


def prepare(path: Path, *sounds: np.ndarray | bytes, spec: ModelSpec = SPEC, **extra: Any) -> list[Any]:
    heard = [each if isinstance(each, bytes) else recording(each) for each in sounds]
    items = [Item(audio=Media(data)) for data in heard]
    return FAMILY.preparer(spec, path).prepare(Task.EXTRACT, items, ExtractOptions(extra=extra))


def told(model: SpeechRecognizer, jobs: list[Prepared]) -> list[dict[str, Any]]:
    outputs = model.run(jobs)
    assert all(isinstance(output, Extracted) for output in outputs), outputs
    return [dict(output.data) for output in outputs if isinstance(output, Extracted)]


@torch.inference_mode()
def reference(path: Path, samples: np.ndarray, **asked: Any) -> list[dict[str, Any]]:
    """What transformers alone hears, segment by segment."""
    whisper = tf.WhisperForConditionalGeneration.from_pretrained(path).eval()
    extractor = tf.WhisperFeatureExtractor.from_pretrained(path)
    padding = "max_length" if len(samples) <= 64_000 else "longest"
    read = extractor(samples, sampling_rate=16_000, truncation=False, padding=padding, return_tensors="pt")
    made = whisper.generate(
        read.input_features, return_timestamps=True, return_segments=True, do_sample=False, **asked
    )
    ends = whisper.generation_config.no_timestamps_token_id
    found = [(s, [int(t) for t in s["tokens"] if t < ends]) for s in made["segments"][0]]
    return [{"start": float(s["start"]), "tokens": ids} for s, ids in found if ids]


@pytest.mark.parametrize("samples", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("task", ["transcribe", "translate"])
def test_words_and_times_equal_those_of_transformers(
    path: Path, model: SpeechRecognizer, samples: np.ndarray, task: str, compared: Callable[..., None]
):
    pcm = audio.samples(Item(audio=Media(recording(samples))), 10**6)

    (answer,) = told(model, prepare(path, samples, language="de", task=task))

    expected = reference(path, pcm, language="de", task=task)
    words, theirs = ([s["tokens"] for s in segments] for segments in (answer["segments"], expected))
    heard = f"tiny Whisper, {task}, {len(samples) / 16_000:g} s"
    compared("speech_recognizer", heard, "transformers", [repr(words)], [repr(theirs)])
    assert words == [s["tokens"] for s in expected if s["tokens"]]
    starts = [min(s["start"], answer["duration"]) for s in expected]  # a random model hears past the end
    assert [s["start"] for s in answer["segments"]] == pytest.approx(starts, abs=0.01)
    assert answer["segments"] and (answer["language"], answer["task"]) == ("de", task)
    assert answer["duration"] == pytest.approx(len(samples) / 16_000, abs=1e-3)


def test_a_batch_of_languages_lengths_and_tasks_equals_single_runs(path: Path, model: SpeechRecognizer):
    jobs = [
        *prepare(path, SHORT, OTHER, LONG, language="en"),
        *prepare(path, OTHER, LONGER, language="fr"),
        *prepare(path, SHORT, task="translate"),
        *prepare(path, OTHER, prompt="names: Ada, Grace"),
    ]

    together = told(model, jobs)

    assert together == [told(model, [job])[0] for job in jobs]


def test_a_prompt_and_a_language_change_what_is_heard(path: Path, model: SpeechRecognizer):
    answers = [
        told(model, prepare(path, SHORT, **asked))[0]["text"]
        for asked in (
            {"language": "en"},
            {"language": "german"},
            {"language": "en", "prompt": "Ada Lovelace"},
        )
    ]

    assert len(set(answers)) == 3


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "MP3", "OGG"])
@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2)])
def test_recordings_of_any_form_become_one_channel_of_16_kHz(kind: str, rate: int, channels: int):
    times = np.arange(rate) / rate
    tone = np.repeat((0.5 * np.sin(2 * np.pi * 440 * times)).astype(np.float32)[:, None], channels, 1)

    heard = audio.samples(Item(audio=Media(recording(tone, kind, rate))), 10_000)

    assert len(heard) == pytest.approx(16_000, abs=1500)
    middle = heard[4000:12_000] * np.hanning(8000)
    assert np.abs(np.fft.rfft(middle)).argmax() * 2 == pytest.approx(440, abs=4)
    assert np.abs(heard).max() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x00\x00\x00 ftypM4A \x00\x00", "M4A"),
        (b"\x1aE\xdf\xa3 webm", "WebM"),
        (b"no recording at all", "cannot be decoded"),
        (b"", "cannot be decoded"),
        (recording(np.empty(0, np.float32)), "empty"),
        (recording(sound(0.1, rate=1000), rate=1000), "1000 samples a second"),
    ],
)
def test_what_cannot_be_heard_is_said_of_its_item_alone(path: Path, data: bytes, said: str):
    wrong, right = prepare(path, data, SHORT)

    assert isinstance(wrong, InvalidInput) and said in wrong.message
    assert isinstance(right, Prepared)


def test_a_recording_beyond_the_limit_is_refused_before_it_is_held(path: Path):
    spec = SPEC.model_copy(update={"limits": Limits(max_item_cost=2000)})

    good, bad = prepare(path, SHORT, OTHER, spec=spec)

    assert isinstance(good, Prepared)
    assert isinstance(bad, InputTooLong) and "2000 ms" in bad.message


def test_the_cost_is_whole_windows_and_the_usage_what_was_heard(path: Path):
    short, long = prepare(path, SHORT, LONG)

    assert (short.cost, short.usage.audio_ms) == (4000, 1500)
    assert (long.cost, long.usage.audio_ms) == (8000, 6000)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"language": "klingon"}, "klingon.*de, en, fr"),
        ({"task": "sing"}, "transcribe, translate"),
        ({"temperature": 2}, "between 0 and 1"),
        ({"prompt": 3}, "is a text"),
        ({"speakers": 2}, "speakers"),
    ],
)
def test_a_wrong_option_is_refused_with_what_there_is(path: Path, extra: dict[str, Any], said: str):
    with pytest.raises(EngineError, match=said):
        prepare(path, SHORT, **extra)


def test_an_english_model_neither_translates_nor_takes_other_languages(tmp_path: Path):
    path = save(tmp_path, multilingual=False)

    with pytest.raises(InvalidInput, match="it has: transcribe"):
        prepare(path, SHORT, task="translate")
    with pytest.raises(InvalidInput, match="it knows: en"):
        prepare(path, SHORT, language="de")
    (answer,) = told(FAMILY.load(SPEC, path, "cpu"), prepare(path, SHORT))
    assert answer["language"] == "en"


def test_what_it_takes_is_at_least_its_weights(path: Path, model: SpeechRecognizer):
    held = {id(t): t.nbytes for t in model.tensors().values()}

    taken = FAMILY.footprint(SPEC, path)

    assert taken.weights_bytes == pytest.approx(sum(held.values()), rel=0.05)
    assert taken.workspace_per_cost * 4000 > 200 * 32 * 4 * 4
