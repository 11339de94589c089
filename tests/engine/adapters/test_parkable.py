"""Models of each family leave a device whole, and answer as before when they are back.

A CPU stands for the card. There the linear layers of encoders are prepacked and stay in place; on a card
they are not, and leave with the rest.
"""

from __future__ import annotations

import gc
import io
import types
from typing import Any

import msgspec
import pytest
import torch
from PIL import Image
from transformers import AutoModel

from engine import catalog
from engine.adapters.family import GenerativeModel, Model, Parkable, family
from engine.adapters.forward.layers import Held
from engine.adapters.forward.linear import PackedLinear
from engine.adapters.forward.vectors import Trained
from engine.adapters.forward.weights import load
from engine.adapters.preparing.routes import Layer
from engine.adapters.text_encoder import TextEncoder, Transformer
from engine.devices.parking import park
from engine.requests import (
    EncodeOptions,
    ExtractOptions,
    GenerateOptions,
    Item,
    Media,
    Options,
    Output,
    OutputType,
    ScoreOptions,
    Task,
)
from tests.weights import CATALOG, weights

TEXTS = (Item(text="Maria Silva lives at 12 Baker Street."), Item(text="the quick brown fox"))
CODE = type | types.ModuleType | types.FunctionType
SOME = 4096
"""Bytes that may stay: nothing of this size is a model."""


def photo() -> Item:
    out = io.BytesIO()
    Image.effect_noise((64, 48), 80).convert("RGB").save(out, "PNG")
    return Item(images=(Media(out.getvalue()),))


ASKED: dict[str, tuple[Task, tuple[Item, ...], Options]] = {
    "sentence-transformers/all-MiniLM-L6-v2": (Task.ENCODE, TEXTS, EncodeOptions()),
    "answerdotai/answerai-colbert-small-v1": (
        Task.ENCODE,
        TEXTS,
        EncodeOptions(output_types=(OutputType.MULTIVECTOR,)),
    ),
    "serai/splade-tiny-msmarco": (Task.ENCODE, TEXTS, EncodeOptions(output_types=(OutputType.SPARSE,))),
    "cross-encoder/ms-marco-MiniLM-L-12-v2": (Task.SCORE, TEXTS, ScoreOptions(query=Item(text="foxes"))),
    "nationaldesignstudio/rampart": (Task.EXTRACT, TEXTS, ExtractOptions()),
    "nanoguard": (Task.EXTRACT, TEXTS, ExtractOptions()),
    "google/mobilenet_v2_1.0_224": (Task.ENCODE, (photo(),), EncodeOptions()),
    "HuggingFaceTB/SmolLM2-135M-Instruct": (
        Task.GENERATE,
        TEXTS,
        GenerateOptions(max_new_tokens=4, temperature=0.0),
    ),
}


def answers(model: Model | GenerativeModel, prepared: list[Any]) -> list[bytes]:
    if isinstance(model, GenerativeModel):
        done: dict[str, Output] = {}
        joining = {str(number): job for number, job in enumerate(prepared)}
        while len(done) < len(prepared):
            for job, step in model.advance(joining, (), 60.0).items():
                done |= {} if step.done is None else {job: step.done}
            joining = {}
        return [msgspec.msgpack.encode(done[job]) for job in sorted(done)]
    return [msgspec.msgpack.encode(output, enc_hook=plain) for output in model.run(prepared)]


def plain(value: Any) -> bytes:
    return value.tobytes()


def left(model: object) -> list[torch.Tensor]:
    """The tensors that a model reaches and that still hold memory of any size, prepacked ones apart."""
    seen: dict[int, object] = {}
    found, waiting = [], [model]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, CODE | PackedLinear):
            continue
        seen[id(thing)] = thing
        waiting += gc.get_referents(thing)
        if isinstance(thing, torch.Tensor) and thing.untyped_storage().nbytes() > SOME:
            found.append(thing)
    return found


def test_a_projection_leaves_with_its_encoder():
    path = weights("sentence-transformers/all-MiniLM-L6-v2")
    projection = torch.randn(16, 384)
    layer = Held(Layer("dense", path), {"weight": projection.clone()})
    trained = Trained(load(AutoModel, path, "cpu", torch.float32), projections=(layer,))
    encoder = TextEncoder({"document": Transformer(trained)})

    parked = park(encoder, "cpu")
    assert left(encoder) == []
    parked.restore("cpu")

    assert torch.equal(encoder.tensors()["0.projections.0.weight"], projection)


@pytest.mark.parametrize("name", ["serai/splade-tiny-msmarco", "HuggingFaceTB/SmolLM2-135M-Instruct"])
def test_inputs_go_to_where_the_weights_are_now(name):
    """They may come back to another card than they left."""
    spec, path = catalog.load([CATALOG]).models[name], weights(name)
    model: Any = family(spec.family).load(spec, path, "cpu")

    (whole,) = getattr(model, "transformers", (model,))
    (whole.trained.model if isinstance(whole, Transformer) else whole._model).to("meta")

    assert getattr(whole, "_encoder", whole)._device == torch.device("meta")


@pytest.mark.parametrize("name", ASKED)
def test_a_model_leaves_whole_and_answers_as_before(name):
    torch.set_num_threads(1)
    spec, path = catalog.load([CATALOG]).models[name], weights(name)
    task, items, options = ASKED[name]
    model = family(spec.family).load(spec, path, "cpu")
    prepared = family(spec.family).preparer(spec, path).prepare(task, items, options)
    before = answers(model, prepared)
    assert isinstance(model, Parkable) and left(model)

    parked = park(model, "cpu")
    assert left(model) == []
    parked.restore("cpu")
    parked.release()

    assert answers(model, prepared) == before
    model.unload()
    assert left(model) == []
