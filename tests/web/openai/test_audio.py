"""What OpenAI's clients send as recordings, and read as their text."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from aiohttp import ClientSession, FormData

from engine.errors import InvalidInput
from engine.requests import Extracted, ExtractOptions, Request, Response, Task, Usage
from tests.web.fakes import TIMING, FakeEngine, spec
from web.api.openai import audio

pytestmark = pytest.mark.anyio

EARS = "fake/ears"
DATA: dict[str, Any] = {
    "text": "Hello there. --> Good bye.",
    "language": "en",
    "task": "transcribe",
    "duration": 3661.5,
    "segments": [
        {"id": 0, "start": 0.0, "end": 1.5, "text": " Hello there.", "tokens": [1, 2]},
        {"id": 1, "start": 3600.0, "end": 3661.234, "text": " -->\n\nGood bye.", "tokens": [3]},
    ],
}


@pytest.fixture
def ears(engine: FakeEngine) -> FakeEngine:
    entry = spec(EARS, Task.EXTRACT, inputs=["audio"], loras={"dialect": {"sources": [{"hub": "a/b"}]}})
    engine.catalog.models[EARS] = entry  # type: ignore[index]
    engine.answer = lambda request: Response(EARS, (Extracted(data=DATA),), Usage(audio_ms=3_661_500), TIMING)
    return engine


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def heard(engine: FakeEngine) -> tuple[Request, ExtractOptions]:
    request = engine.requests[-1]
    assert isinstance(request.options, ExtractOptions)
    return request, request.options


async def test_the_published_client_has_its_text_in_every_form(ears: FakeEngine, url: str):
    async with client(url) as api:
        ask = api.audio.transcriptions.create
        plain = await ask(file=("a.wav", b"RIFF"), model=EARS)
        text = await ask(file=("a.wav", b"RIFF"), model=EARS, response_format="text")
        srt = await ask(file=("a.wav", b"RIFF"), model=EARS, response_format="srt")
        vtt = await ask(file=("a.wav", b"RIFF"), model=EARS, response_format="vtt")
        verbose = await ask(
            file=("a.wav", b"RIFF"),
            model=EARS,
            response_format="verbose_json",
            timestamp_granularities=["segment"],
        )

    assert plain.text == DATA["text"] and plain.usage.seconds == 3662
    assert text == DATA["text"] + "\n"
    assert srt == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello there.\n\n2\n01:00:00,000 --> 01:01:01,234\n-> Good bye.\n\n"
    )
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello there.\n\n01:00:00.000 -->")
    assert (verbose.language, verbose.duration, verbose.segments[1].start) == ("en", 3661.5, 3600.0)


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
async def test_what_was_asked_reaches_the_engine(ears: FakeEngine, url: str):
    async with client(url) as api:
        asked: dict[str, Any] = {"language": "de", "prompt": "Ada", "temperature": 0.5}
        await api.audio.transcriptions.create(file=("b.flac", b"fLaC"), model=EARS, **asked)
        request, options = heard(ears)
        assert options.extra == {**asked, "task": "transcribe"}
        (item,) = request.items
        assert item.audio is not None and (item.audio.data, item.audio.format) == (b"fLaC", "flac")

        await api.audio.translations.create(file=("b.flac", b"fLaC"), model=f"{EARS}:dialect")
        request, options = heard(ears)
        assert (request.model, options.lora, options.extra["task"]) == (EARS, "dialect", "translate")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "model"),
        ({"model": EARS, "response_format": "midi"}, "response_format"),
        ({"model": EARS, "temperature": "warm"}, "temperature"),
        ({"model": EARS, "stream": "true"}, "stream"),
        ({"model": EARS, "lora_id": "dialect"}, "lora_id"),
        ({"model": EARS, "timestamp_granularities[]": "word"}, "timestamp_granularities"),
    ],
)
async def test_a_wrong_field_is_named(
    ears: FakeEngine, http: ClientSession, fields: dict[str, str], param: str
):
    form = FormData({**fields})
    form.add_field("file", b"RIFF", filename="a.wav")

    async with http.post("/v1/audio/transcriptions", data=form) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == param
    assert not ears.requests


async def test_a_form_without_a_recording_and_a_body_that_is_no_form_are_refused(
    ears: FakeEngine, http: ClientSession
):
    form = FormData({"model": EARS}, default_to_multipart=True)
    async with http.post("/v1/audio/transcriptions", data=form) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "file")
    async with http.post("/v1/audio/transcriptions", json={"model": EARS}) as response:
        assert response.status == 400


async def test_a_recording_beyond_the_limit_is_refused_with_the_limit(
    ears: FakeEngine, http: ClientSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(audio, "LARGEST", 1000)
    form = FormData({"model": EARS})
    form.add_field("file", b"x" * 1001, filename="a.wav")

    async with http.post("/v1/audio/transcriptions", data=form) as response:
        assert response.status == 413
        assert "1000 bytes" in (await response.json())["error"]["message"]


async def test_a_recording_that_cannot_be_heard_is_the_clients_mistake(ears: FakeEngine, url: str):
    ears.answer = lambda _: Response(EARS, (InvalidInput("The recording is empty."),), Usage(), TIMING)

    async with client(url) as api:
        with pytest.raises(openai.BadRequestError, match="empty"):
            await api.audio.transcriptions.create(file=("a.wav", b"RIFF"), model=EARS)
