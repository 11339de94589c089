"""Families without real weights here, through the real server and published clients: LoRA, audio, images.

The models are of a few thousand random weights; every answer is what the library that defines them gives.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import torch
import transformers as tf
import yaml
from openai import OpenAI
from sie_sdk import SIEClient

from engine.adapters import image_to_text
from engine.adapters.preparing import audio
from engine.requests import ExtractOptions, Item, Media, Task
from tests.acceptance.serving import PATIENCE, Server, serving
from tests.engine.adapters import (
    tiny_decoders,
    tiny_donut,
    tiny_loras,
    tiny_seeing,
    tiny_vision,
    tiny_whisper,
)
from tests.engine.adapters.test_lora import means
from tests.engine.adapters.test_lora_generation import greedy
from tests.engine.adapters.test_speech import reference as heard
from tests.engine.adapters.tiny_texts import FAMILIES, TEXTS, saved
from tests.engine.adapters.tiny_vision import noise, png, shown

ENCODER, WRITER, EARS, EYES, FORMS = (
    f"tiny/{name}" for name in ("encoder", "writer", "ears", "eyes", "forms")
)
QUESTIONS = {"task_prompt": tiny_donut.PROMPT, "output": "json", "max_new_tokens": 16}
PICTURES = (noise(70, 40), noise(30, 64, 2))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    encoder = saved(FAMILIES["bert"](), folder / "encoder")
    writer = tiny_decoders.save(folder / "writer", tiny_decoders.CONFIGS["llama"])
    low = {"r": 4, "lora_alpha": 8}
    return {
        ENCODER: encoder,
        "encoder lora": tiny_loras.save(
            encoder, folder / "lora1", tf.AutoModel, 1, target_modules=["query", "value"], **low
        ),
        WRITER: writer,
        "writer lora": tiny_loras.save(
            writer,
            folder / "lora2",
            tf.AutoModelForCausalLM,
            2,
            **{"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **low},
        ),
        EARS: tiny_whisper.save(folder / "ears"),
        EYES: tiny_seeing.save(folder / "eyes", "smolvlm"),
        FORMS: tiny_donut.save(folder / "forms"),
    }


@pytest.fixture(scope="module")
def server(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    def entry(model: str, family: str, task: str, **keys: Any) -> dict[str, Any]:
        return {
            **{"id": model, "family": family, "tasks": [task], "devices": ["cpu"]},
            **{"sources": [{"directory": str(models[model])}], "limits": {"max_slots": 1}},
            **keys,
        }

    def loras(name: str) -> dict[str, Any]:
        return {"fine": {"sources": [{"directory": str(models[name])}]}}

    entries = [
        entry(
            ENCODER, "text_encoder", "encode", outputs=["dense"], pooling="mean", loras=loras("encoder lora")
        ),
        entry(WRITER, "causal_lm", "generate", loras=loras("writer lora")),
        entry(EARS, "speech_recognizer", "extract", inputs=["audio"]),
        entry(EYES, "vision_lm", "generate", inputs=["text", "image"]),
        entry(FORMS, "image_to_text", "extract", inputs=["image"], options=QUESTIONS),
    ]
    place = tmp_path_factory.mktemp("tiny")
    catalog = place / "catalog"
    catalog.mkdir()
    (catalog / "tiny.yaml").write_text(yaml.safe_dump({"models": entries}))
    with serving(place, memory="1GiB", catalog=catalog) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def ours(server: Server) -> Iterator[SIEClient]:
    with SIEClient(server.url, timeout_s=PATIENCE) as client:
        yield client


def spelled(ids: list[int]) -> str:
    """The text of an answer whose tokens are bytes."""
    return tiny_decoders.byte_level().decode(ids).rstrip("\ufffd")


def test_adapters_are_asked_for_by_name_and_change_vectors_and_texts(
    models: dict[str, Path], server: Server, client: OpenAI, ours: SIEClient
):
    plain, fine = (
        np.stack(
            [found["dense"] for found in ours.encode(ENCODER, [{"text": t} for t in TEXTS], options=options)]
        )
        for options in ({}, {"lora_id": "fine"})
    )
    colon = client.embeddings.create(model=f"{ENCODER}:fine", input=TEXTS)
    peft = tiny_loras.reference(models[ENCODER], models["encoder lora"], tf.AutoModel)
    assert np.abs(fine - means(peft)).max() < 1e-5 < np.abs(fine - plain).max()
    assert np.abs(np.array([each.embedding for each in colon.data]) - fine).max() < 1e-6

    def written(model: str, **more: Any) -> str:
        made = client.completions.create(
            model=model, prompt="Once", max_tokens=12, temperature=0, extra_body=more
        )
        return made.choices[0].text

    alone = tf.AutoModelForCausalLM.from_pretrained(models[WRITER]).eval()
    tuned = tiny_loras.reference(models[WRITER], models["writer lora"], tf.AutoModelForCausalLM)
    expected = spelled(greedy(tuned, "Once"))
    assert written(f"{WRITER}:fine") == written(WRITER, lora_adapter="fine") == expected
    assert written(WRITER) == spelled(greedy(alone, "Once")) != expected
    generated = ours.generate(WRITER, "Once", max_new_tokens=12, options={"raw": True, "lora_id": "fine"})
    assert generated["text"] == expected
    with pytest.raises(openai.BadRequestError, match="has no adapter 'coarse'"):
        written(WRITER, lora_adapter="coarse")


def test_a_recording_is_heard_by_both_routes_as_transformers_hears_it(
    models: dict[str, Path], client: OpenAI, ours: SIEClient
):
    recording = tiny_whisper.recording(tiny_whisper.sound(1.5, 1))
    samples = audio.samples(Item(audio=Media(recording)), 10**6)
    (segment, *_) = heard(models[EARS], samples, language="de", task="transcribe")

    told = client.audio.transcriptions.create(
        model=EARS, file=("a.wav", recording), language="de", response_format="verbose_json"
    )
    (extracted,) = ours.extract(EARS, [{"audio": {"data": recording}}], options={"language": "de"})

    assert told.language == "de" and told.duration == pytest.approx(1.5, abs=1e-3)
    assert told.segments and list(told.segments[0].tokens) == segment["tokens"]
    assert extracted["data"]["text"] == told.text
    with pytest.raises(openai.BadRequestError, match="cannot be"):
        client.audio.transcriptions.create(model=EARS, file=("a.wav", b"no sound"))


@torch.inference_mode()
def test_images_in_a_conversation_are_seen_as_transformers_sees_them(
    models: dict[str, Path], client: OpenAI, ours: SIEClient
):
    alone = tiny_seeing.Reference(models[EYES], "smolvlm")
    parts: list[Any] = [
        *({"type": "image_url", "image_url": {"url": url(png(picture))}} for picture in PICTURES),
        {"type": "text", "text": "What is this?"},
    ]

    def chat(content: Any, model: str = EYES) -> Any:
        said: Any = [{"role": "user", "content": content}]
        return client.chat.completions.create(model=model, messages=said, max_tokens=12, temperature=0)

    answer = chat(parts)
    native = ours.generate(EYES, "What is this?", max_new_tokens=12, images=list(map(png, PICTURES)))

    ids = alone.prompt(models[EYES], "What is this?", PICTURES)
    expected = spelled([token for token in alone.greedy(ids, PICTURES, 12) if token < 256])
    assert answer.choices[0].message.content == native["text"] == expected
    assert answer.usage.prompt_tokens == native["usage"]["prompt_tokens"] == len(ids)
    assert chat("What is this?").choices[0].message.content != expected
    for content, model, why in (
        ([{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}], EYES, "fetches nothing"),
        ([{"type": "image_url", "image_url": {"url": url(b"no image")}}], EYES, "image 0"),
        (parts, WRITER, "takes text"),
    ):
        with pytest.raises(openai.BadRequestError, match=why):
            chat(content, model)


def test_answers_that_are_extracted_are_written_by_quanta_and_are_the_same(
    models: dict[str, Path], server: Server, ours: SIEClient
):
    spec = tiny_vision.entry("image_to_text", Task.EXTRACT, options=QUESTIONS)
    asked = ExtractOptions(instruction="what is this")
    jobs = image_to_text.FAMILY.preparer(spec, models[FORMS]).prepare(Task.EXTRACT, shown(*PICTURES), asked)
    alone = image_to_text.FAMILY.load(spec, models[FORMS], "cpu")
    expected = [alone.run([job])[0] for job in jobs]

    items = [{"images": [{"data": png(picture), "format": "png"}]} for picture in PICTURES]
    told = ours.extract(
        FORMS, [*items, {"images": [{"data": png(PICTURES[0])[:200]}]}], instruction="what is this"
    )

    assert [answer["data"] for answer in told[:2]] == [answer.data for answer in expected]
    assert told[2]["error"]["code"] == "INVALID_INPUT"
    assert server.model(FORMS)["state"] == "loaded"


def url(data: bytes) -> str:
    return f"data:image/png;base64,{b64encode(data).decode()}"
