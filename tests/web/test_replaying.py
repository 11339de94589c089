"""What a replay sends over HTTP is what the engine was asked, to the last option."""

from __future__ import annotations

import orjson
import pytest

from engine.config import Settings
from engine.requests import (
    EncodeOptions,
    ExtractOptions,
    GenerateOptions,
    Item,
    Media,
    OutputType,
    Overflow,
    Request,
    ScoreOptions,
    Task,
)
from web.replaying import bodies
from web.replaying.own_server import _settings
from web.wire import bodies as wire
from web.wire.forms import Form
from web.wire.items import Limits

LIMITS = Limits(5000, 2**20)
READERS = {
    Task.ENCODE: wire.encode,
    Task.SCORE: wire.score,
    Task.EXTRACT: wire.extract,
    Task.GENERATE: wire.generate,
}

REQUESTS = [
    Request("1", Task.ENCODE, "m", (Item(text="a"), Item(id="x", text="b")), EncodeOptions()),
    Request(
        "2",
        Task.ENCODE,
        "m",
        (Item(text="a", metadata={"k": [1]}),),
        EncodeOptions(
            output_types=(OutputType.DENSE, OutputType.SPARSE),
            is_query=True,
            instruction="find",
            output_dtype="int8",
            normalize=False,
            pooling="cls",
            dimensions=64,
            overflow=Overflow.ERROR,
        ),
        profile="short",
    ),
    Request("3", Task.ENCODE, "m", (Item(images=(Media(b"\x00\xff", "png"),)),), EncodeOptions()),
    Request(
        "4",
        Task.SCORE,
        "m",
        (Item(text="p"), Item(text="r")),
        ScoreOptions(query=Item(text="q"), instruction="i", activation="raw"),
        profile="p",
    ),
    Request(
        "5",
        Task.EXTRACT,
        "m",
        (Item(document=Media(b"%PDF", "pdf")),),
        ExtractOptions(labels=("a", "b"), threshold=0.4, output_schema={"x": 1}, extra={"flat": True}),
    ),
    Request(
        "6",
        Task.GENERATE,
        "m",
        (Item(text="go"),),
        GenerateOptions(
            max_new_tokens=7, temperature=0.5, top_p=0.9, stop=("\n",), seed=3, logit_bias={5: -1.0}, raw=True
        ),
    ),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: f"{r.task}-{r.id}")
def test_a_request_comes_out_of_its_own_body_as_it_was(request_):
    body = orjson.dumps(bodies.of(request_))
    asked = READERS[request_.task](body, Form.JSON, LIMITS)

    assert asked.items == request_.items
    assert asked.options == request_.options
    assert asked.profile == request_.profile


def test_a_conversation_is_sent_as_its_texts():
    options = GenerateOptions(messages=({"role": "user", "content": "hello"},))
    body = bodies.of(Request("7", Task.GENERATE, "m", (Item(),), options))
    assert body["prompt"] == "hello"


def test_the_settings_of_a_replays_own_server_are_those_of_the_operator():
    from engine.config import load

    chosen = load({"memory": "2GiB", "pins": "a,b", "window_share": "0.2", "online": "true", "slots": "3"})
    told = dict(_settings(chosen))
    again = load({}, environ={**told, "HOME": "/x"})

    assert {name: getattr(again, name) for name in ("memory", "pins", "window_share", "online", "slots")} == {
        "memory": 2 * 2**30,
        "pins": ("a", "b"),
        "window_share": 0.2,
        "online": True,
        "slots": 3,
    }
    assert dict(_settings(Settings())) == {}
