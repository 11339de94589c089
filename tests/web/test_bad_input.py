"""Whatever a body holds, its sender is told what is wrong with it, and nobody else notices."""

from __future__ import annotations

import json
import zlib

import anyio
import anyio.lowlevel
import msgpack
import msgpack_numpy
import numpy as np
import pytest
from aiohttp import ClientSession

from engine.config import Settings
from tests.web.fakes import FakeEngine

pytestmark = pytest.mark.anyio

JSON, MSGPACK = "application/json", "application/msgpack"
ENCODE, SCORE, EXTRACT, GENERATE = (
    f"/v1/{task}/fake/{model}"
    for task, model in [
        ("encode", "encoder"),
        ("score", "reranker"),
        ("extract", "extractor"),
        ("generate", "writer"),
    ]
)
OBJECTS = {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": b"\x80\x04N."}


def one(**fields: object) -> dict[str, object]:
    return {"items": [{"text": "good"}, {"text": "a", **fields}]}


def params(**fields: object) -> dict[str, object]:
    return {"items": [{"text": "good"}], "params": fields}


def options(**fields: object) -> dict[str, object]:
    return params(options=fields)


def prompt(**fields: object) -> dict[str, object]:
    return {"prompt": "p", **fields}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(Settings(max_body_bytes=100_000, max_items=50, max_item_text_bytes=20_000))


BODIES = [
    # route, body, what the message names, the item's index
    (ENCODE, {}, "items", None),
    (ENCODE, {"items": []}, "items is empty", None),
    (ENCODE, {"items": None}, "items", None),
    (ENCODE, {"items": "text"}, "items", None),
    (ENCODE, {"items": {"text": "a"}}, "items", None),
    (ENCODE, {"items": ["text"]}, "items[0]", 0),
    (ENCODE, {"items": [{"text": "a"}, [["b"]]]}, "items[1]", 1),
    (ENCODE, {"items": [{"text": "a"}, 3]}, "items[1]", 1),
    (ENCODE, {"items": [{"text": "a"}, None]}, "items[1]", 1),
    (ENCODE, {"items": [{"text": "a"}, {}]}, "items[1] is empty", 1),
    (ENCODE, {"items": [{"text": "a"}] * 51}, "at most 50", None),
    (ENCODE, one(text=3), "items[1].text", 1),
    (ENCODE, one(text=["b"]), "items[1].text", 1),
    (ENCODE, one(text="x" * 20_001), "20000", 1),
    (ENCODE, one(text="ä" * 10_001), "20000", 1),
    (ENCODE, one(id=7), "items[1].id", 1),
    (ENCODE, one(images={"data": "YQ=="}), "items[1].images", 1),
    (ENCODE, one(images=[{"format": "png"}]), "data", 1),
    (ENCODE, one(images=[{"data": 5}]), "items[1].images[0].data", 1),
    (ENCODE, one(audio={"data": "", "sample_rate": "x"}), "items[1].audio", 1),
    (ENCODE, one(metadata=[1]), "items[1].metadata", 1),
    (ENCODE, one(metadata={"a": "x" * 20_001}), "20000", 1),
    (ENCODE, params(output_types="dense"), "output_types", None),
    (ENCODE, params(output_types=["dens"]), "dense", None),
    (ENCODE, params(output_types=[None]), "output_types", None),
    (ENCODE, params(output_dtype="float64"), "float16", None),
    (ENCODE, params(instruction=1), "instruction", None),
    (ENCODE, {"items": [{"text": "a"}], "params": []}, "params", None),
    (ENCODE, params(options=[1]), "options", None),
    (ENCODE, options(profile="none"), "profile", None),
    (ENCODE, options(profile=4), "options.profile", None),
    (ENCODE, options(is_query="yes"), "options.is_query", None),
    (ENCODE, options(dimensions=0), "options.dimensions", None),
    (ENCODE, options(dimensions=True), "options.dimensions", None),
    (ENCODE, options(overflow_policy="drop"), "truncate_text", None),
    (ENCODE, options(**{"class": "urgent"}), "interactive", None),
    (ENCODE, options(lora_id=4), "options.lora_id", None),
    (ENCODE, options(lora_id=""), "options.lora_id", None),
    (ENCODE, options(lora_id=[]), "options.lora_id", None),
    (EXTRACT, options(lora_id=""), "options.lora_id", None),
    (ENCODE, options(big="x" * 2**18), "INPUT_TOO_LONG", None),
    (SCORE, {"items": [{"text": "a"}]}, "query", None),
    (SCORE, {"query": "a", "items": [{"text": "a"}]}, "query", None),
    (SCORE, {"query": {}, "items": [{"text": "a"}]}, "query is empty", None),
    (SCORE, {"query": {"text": "a"}, "items": []}, "items is empty", None),
    (SCORE, {"query": {"text": "a"}, "items": [{"text": "a"}], "options": {"activation": "x"}}, "raw", None),
    (EXTRACT, params(labels="person"), "labels", None),
    (EXTRACT, params(labels=[1]), "labels", None),
    (EXTRACT, params(labels=["l"] * 1001), "1000", None),
    (EXTRACT, params(output_schema=[]), "output_schema", None),
    (EXTRACT, options(threshold=1.5), "threshold", None),
    (EXTRACT, options(threshold="high"), "threshold", None),
    (GENERATE, {}, "prompt", None),
    (GENERATE, {"prompt": None}, "prompt", None),
    (GENERATE, {"prompt": "x" * 20_001}, "20000", None),
    (GENERATE, prompt(lora_adapter=4), "lora_adapter", None),
    (GENERATE, prompt(lora_adapter=""), "lora_adapter", None),
    (GENERATE, prompt(grammar={}), "grammar holds one", None),
    (GENERATE, prompt(grammar={"ebnf": "a"}), "json_schema or regex", None),
    (GENERATE, prompt(grammar={"regex": "a", "json_schema": {}}), "grammar holds one", None),
    (GENERATE, prompt(max_new_tokens=0), "max_new_tokens", None),
    (GENERATE, prompt(max_new_tokens=1.5), "max_new_tokens", None),
    (GENERATE, prompt(temperature=-1), "temperature", None),
    (GENERATE, prompt(top_p=0), "top_p", None),
    (GENERATE, prompt(stop=[""]), "stop", None),
    (GENERATE, prompt(stop=[1]), "stop", None),
    (GENERATE, prompt(seed=2**70), "seed", None),
    (GENERATE, prompt(logit_bias={"a": 1}), "logit_bias", None),
    (GENERATE, prompt(images=[{"data": ""}] * 17), "16", None),
]


async def refused(http: ClientSession, route: str, body: bytes, content_type: str) -> tuple[int, dict]:
    headers = {"Content-Type": content_type, "Accept": JSON}
    async with http.post(route, data=body, headers=headers) as response:
        said = (await response.json())["detail"]
        assert response.headers["X-SIE-Error-Code"] == said["code"]
        assert said["message"]
        return response.status, said


@pytest.mark.parametrize(
    ("route", "body", "named", "item", "form"),
    [(*case, form) for form in (JSON, MSGPACK) for case in BODIES if form == JSON or case[0] != GENERATE],
)
async def test_a_wrong_body_is_refused_by_name(http, engine, route, body, named, item, form):
    packed = json.dumps(body).encode() if form == JSON else msgpack.packb(body)

    status, said = await refused(http, route, packed, form)

    assert 400 <= status < 500
    assert named in said["message"] + said["code"]
    assert said.get("item") == item
    assert engine.requests == []


RAW = [
    (b"", JSON, "empty"),
    (b"", MSGPACK, "empty"),
    (b"nothing", JSON, "JSON"),
    (b"[]", JSON, "map"),
    (b"null", JSON, "map"),
    (b'"text"', JSON, "map"),
    (b'{"items":[{"text":"a"', JSON, "json"),
    (b'{"items":[{"text":"a"}]} trailing', JSON, "json"),
    (b'{"items":[{"text":NaN}]}', JSON, "invalid character"),
    (b"\xc1", MSGPACK, "msgpack"),
    (b"\x81\xa5items\xdd\xff\xff\xff\xff\x80", MSGPACK, "items"),
    (b"\x81\xa5items\x91\x81\xa4text\xdb\xff\xff\xff\xffa", MSGPACK, "msgpack"),
    (b"\x81\xa5items\x91\x81\xa4text\xc7\x01\x05a", MSGPACK, "items[0]"),
    (b"\x81\xa1x" + b"\x91" * 50_000, MSGPACK, "deep"),
    (b'{"x":' + b"[" * 50_000, JSON, "deep"),
    (msgpack.packb({"items": [{"text": "a"}]}), JSON, "looks like msgpack"),
    (b'{"items":[{"text":"a"}]}', MSGPACK, "looks like JSON"),
    (b'{"items":[{"images":[{"data":"a$b="}]}]}', JSON, "base64"),
    (b'{"items":[{"images":[{"data":"YQ"}]}]}', JSON, "base64"),
    (b'{"items":[{"images":[{"data":"Y\\nQ=="}]}]}', JSON, "base64"),
    (msgpack.packb({"items": [{"images": [{"data": "YQ=="}]}]}), MSGPACK, "bytes"),
    (msgpack.packb({"items": OBJECTS}), MSGPACK, "items"),
    (msgpack.packb({"items": [{"text": OBJECTS}]}), MSGPACK, "items[0].text"),
    (msgpack.packb({"items": [{"text": "a", "metadata": {"x": OBJECTS}}]}), MSGPACK, "numeric arrays"),
    (msgpack.packb({"items": [{"text": "a", "metadata": {"x": {1: 2}}}]}), MSGPACK, "metadata"),
    (msgpack.packb({"items": [{"text": "a", "multivector": OBJECTS}]}), MSGPACK, "numeric arrays"),
    (msgpack.packb({"items": [{"text": "a"}], "params": {"options": {"x": OBJECTS}}}), MSGPACK, "options"),
]


@pytest.mark.parametrize(("body", "form", "named"), RAW)
async def test_bytes_that_are_no_body_are_refused(http, engine, body, form, named):
    status, said = await refused(http, ENCODE, body, form)

    assert status == 400
    assert said["code"] == "INVALID_INPUT"
    assert named in said["message"]
    assert engine.requests == []


SURROGATES = [
    (b'{"items":[{"text":"a"},{"text":"\\ud800"}]}', JSON),
    (b'{"items":[{"text":"a"},{"text":"\\ud800 and a long tail of text"}],"params":{}}', JSON),
    (b'{"items":[{"text":"a"},{"text":"\xed\xa0\x80"}]}', JSON),
    (b'{"items":[{"text":"a"},{"id":"\\udc00\\ud800","text":"b"}]}', JSON),
    (
        msgpack.packb({"items": [{"text": "a"}, {"text": "\ud800"}]}, unicode_errors="surrogatepass"),
        MSGPACK,
    ),
    (b"\x81\xa5items\x92\x81\xa4text\xa1a\x81\xa4text\xa1\xff", MSGPACK),
]


@pytest.mark.parametrize(("body", "form"), SURROGATES)
async def test_text_that_is_no_unicode_names_its_item(http, body, form):
    status, said = await refused(http, ENCODE, body, form)

    assert (status, said["code"], said["item"]) == (400, "INVALID_INPUT", 1)
    assert "items[1]" in said["message"] and "Unicode" in said["message"]


async def test_bad_text_outside_the_items_is_named_as_well(http):
    body = b'{"items":[{"text":"a"}],"params":{"instruction":"\\ud800"}}'

    status, said = await refused(http, ENCODE, body, JSON)

    assert (status, said.get("item")) == (400, None)
    assert "Unicode" in said["message"]


async def test_generate_takes_json_only(http):
    status, said = await refused(http, GENERATE, msgpack.packb({"prompt": "p"}), MSGPACK)

    assert (status, said["code"]) == (400, "INVALID_INPUT")
    assert JSON in said["message"]


async def test_nul_emoji_and_equal_ids_are_no_mistakes(http, engine):
    items = [{"text": "a\0b", "id": "x"}, {"text": "🐫", "id": "x"}, {"text": "", "id": ""}]

    async with http.post(ENCODE, json={"items": items}, headers={"Accept": JSON}) as response:
        said = await response.json()

    assert [item["id"] for item in said["items"]] == ["x", "x", ""]
    assert [item.text for item in engine.requests[0].items] == ["a\0b", "🐫", ""]


async def test_unknown_fields_are_never_built(http):
    """An object array where nobody looks is bytes that are skipped, not a value."""
    body = msgpack.packb({"items": [{"text": "a", "unheard_of": OBJECTS}], "more": [OBJECTS]})

    async with http.post(ENCODE, data=body, headers={"Content-Type": MSGPACK}) as response:
        assert response.status == 200


async def test_numeric_arrays_in_metadata_come_through(http, engine):
    body = msgpack.packb(
        {"items": [{"text": "a", "metadata": {"x": np.arange(6).reshape(2, 3)}}]},
        default=msgpack_numpy.encode,
    )

    async with http.post(ENCODE, data=body, headers={"Content-Type": MSGPACK}) as response:
        assert response.status == 200
    np.testing.assert_array_equal(engine.requests[0].items[0].metadata["x"], [[0, 1, 2], [3, 4, 5]])


BAD_ARRAYS = [
    {b"type": "|V8"},
    {b"type": "<c8"},
    {b"type": "<U4"},
    {b"type": 5},
    {b"kind": b"V"},
    {b"nd": False},
    {b"nd": 1},
    {b"shape": [2**62, 2**62]},
    {b"shape": [3]},
    {b"shape": [-2]},
    {b"shape": [True]},
    {b"shape": 2},
    {b"shape": [1] * 8 + [2]},
    {b"data": "text"},
    {b"data": b""},
]


@pytest.mark.parametrize("change", BAD_ARRAYS, ids=str)
async def test_an_array_that_does_not_add_up_is_refused(http, change):
    good = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2], b"data": bytes(8)}
    body = msgpack.packb({"items": [{"text": "a", "metadata": {"x": {**good, **change}}}]})

    status, said = await refused(http, ENCODE, body, MSGPACK)

    assert (status, said["item"]) == (400, 0)


async def test_a_body_over_the_limit_is_refused_with_both_figures(http, engine):
    status, said = await refused(http, ENCODE, b" " * 100_001, JSON)

    assert (status, said["code"]) == (413, "INPUT_TOO_LONG")
    assert "100001" in said["message"] and "100000" in said["message"]
    assert engine.requests == []


async def test_a_body_that_declares_no_length_is_counted_as_it_comes(http):
    async def chunks():
        for _ in range(30):
            yield b" " * 5000
            await anyio.lowlevel.checkpoint()

    headers = {"Content-Type": JSON, "Accept": JSON}
    async with http.post(ENCODE, data=chunks(), headers=headers) as response:
        said = await response.json()

    assert (response.status, said["detail"]["code"]) == (413, "INPUT_TOO_LONG")


async def test_a_compressed_body_counts_as_what_it_unfolds_to(http):
    headers = {"Content-Type": JSON, "Accept": JSON, "Content-Encoding": "deflate"}
    async with http.post(ENCODE, data=zlib.compress(b" " * 10_000_000), headers=headers) as response:
        assert response.status == 413


async def test_a_body_that_is_not_compressed_as_it_says_is_refused(http):
    headers = {"Content-Type": JSON, "Accept": JSON, "Content-Encoding": "gzip"}
    async with http.post(ENCODE, data=b'{"items":[]}', headers=headers) as response:
        assert response.status == 400


@pytest.mark.parametrize("route", ["encode", "score", "extract", "generate"])
async def test_an_unknown_model_is_refused_before_its_body_is_read(http, route):
    async def never():
        yield b"{"
        await anyio.sleep(30)

    with anyio.fail_after(5):
        async with http.post(
            f"/v1/{route}/fake/encodr", data=never(), headers={"Accept": JSON, "Content-Type": JSON}
        ) as response:
            said = (await response.json())["detail"]

    assert (response.status, said["code"], said["model"]) == (404, "MODEL_NOT_FOUND", "fake/encodr")
    assert "Did you mean" in said["message"]
