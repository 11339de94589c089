"""Whatever is wrong with a request, its sender is told so by a typed error, and no neighbour notices."""

from __future__ import annotations

import asyncio
import base64
import json
from io import BytesIO
from typing import Any

import msgpack
import numpy as np
import pytest
from aiohttp import ClientSession
from PIL import Image

from tests.acceptance.asking import (
    DOCUMENTS,
    MINILM,
    NER,
    PAGES,
    PHOTOS,
    RERANKER,
    WRITER,
    ask,
    clients,
    encode,
    extract,
    score,
    together,
    vectors,
)
from tests.acceptance.serving import Server
from tests.weights import weights

pytestmark = pytest.mark.anyio

ENCODE, LOOK = f"/v1/encode/{MINILM}", f"/v1/encode/{PHOTOS}"
SCORE, EXTRACT = f"/v1/score/{RERANKER}", f"/v1/extract/{NER}"
GENERATE = f"/v1/generate/{WRITER.replace('/', '__')}"
OBJECTS = {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": b"\x80\x04N."}
GOOD = {"items": [{"text": "good"}]}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def photo() -> bytes:
    pixels = np.random.default_rng(7).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    out = BytesIO()
    Image.fromarray(pixels).save(out, "JPEG")
    return out.getvalue()


def corrupt() -> bytes:
    return photo()[: len(photo()) // 2]


def image(data: str) -> dict[str, Any]:
    return {"items": [{"images": [{"data": data, "format": "jpeg"}]}]}


def texts(*given: object) -> dict[str, Any]:
    return {"items": [{"text": text} for text in given]}


def packed(value: object) -> bytes:
    return msgpack.packb(value)


REFUSED = [
    # path, body, status, code, what the message names
    (f"/v1/encode/{MINILM[:-1]}3", GOOD, 404, "MODEL_NOT_FOUND", f"Did you mean '{MINILM}'"),
    ("/v1/encode/a%00b", GOOD, 404, "MODEL_NOT_FOUND", "no model"),
    ("/v1/score/nobody/nothing", {"query": {"text": "a"}, **GOOD}, 404, "MODEL_NOT_FOUND", "no model"),
    (EXTRACT.replace("extract", "encode"), GOOD, 400, "INVALID_INPUT", "extract"),
    (ENCODE, {"items": []}, 400, "INVALID_INPUT", "items is empty"),
    (SCORE, {"query": {"text": "a"}, "items": []}, 400, "INVALID_INPUT", "items is empty"),
    (EXTRACT, {"items": []}, 400, "INVALID_INPUT", "items is empty"),
    (ENCODE, {"items": [{}]}, 400, "INVALID_INPUT", "items[0] is empty"),
    (ENCODE, texts("good", 3), 400, "INVALID_INPUT", "items[1].text"),
    (ENCODE, texts(["good"]), 400, "INVALID_INPUT", "items[0].text"),
    (ENCODE, {"items": "good"}, 400, "INVALID_INPUT", "items"),
    (SCORE, {"query": 4, **GOOD}, 400, "INVALID_INPUT", "query"),
    (EXTRACT, {**GOOD, "params": {"labels": "date"}}, 400, "INVALID_INPUT", "labels"),
    (EXTRACT, {**GOOD, "params": {"labels": ["flavour"]}}, 400, "INVALID_INPUT", "organization"),
    (GENERATE, {"prompt": 4}, 400, "INVALID_INPUT", "prompt"),
    (GENERATE, {"prompt": "a", "max_new_tokens": "many"}, 400, "INVALID_INPUT", "max_new_tokens"),
    (ENCODE, b'{"items":[{"text":"good"},{"text":"\\ud800"}]}', 400, "INVALID_INPUT", "items[1]"),
    (EXTRACT, b'{"items":[{"text":"\\udc00 a"}]}', 400, "INVALID_INPUT", "Unicode"),
    (GENERATE, b'{"prompt":"\\ud800"}', 400, "INVALID_INPUT", "Unicode"),
    (ENCODE, texts("a" * 2_200_000), 400, "INPUT_TOO_LONG", "2097152"),
    (
        ENCODE,
        {**texts("a" * 2_000_000), "params": {"options": {"overflow_policy": "error"}}},
        400,
        "INPUT_TOO_LONG",
        "256",
    ),
    (LOOK, image("a$b="), 400, "INVALID_INPUT", "base64"),
    (LOOK, image("YQ"), 400, "INVALID_INPUT", "base64"),
    (LOOK, image(""), 400, "INVALID_INPUT", "image"),
    (LOOK, image(b64(corrupt())), 400, "INVALID_INPUT", "decoded"),
    (LOOK, image(b64(b"<html><body>no photo</body></html>")), 400, "INVALID_INPUT", "image"),
    (ENCODE, image(b64(photo())), 400, "INVALID_INPUT", "takes text"),
    (LOOK, GOOD, 400, "INVALID_INPUT", "takes image"),
    (ENCODE, b"", 400, "INVALID_INPUT", "empty"),
    (ENCODE, b'{"items":', 400, "INVALID_INPUT", "json"),
    (ENCODE, b"x" * (34 * 2**20 + 1), 413, "INPUT_TOO_LONG", "35651584"),
]

PACKED = [
    (ENCODE, packed({"items": [{"text": OBJECTS}]})),
    (ENCODE, packed({"items": OBJECTS})),
    (ENCODE, packed({"items": [{"text": "a", "metadata": {"x": OBJECTS}}]})),
    (EXTRACT, packed({"items": [{"text": "a"}], "params": {"labels": OBJECTS}})),
    (ENCODE, b"\x81\xa5items\xdd\xff\xff\xff\xff\x80"),
    (ENCODE, b"\xc1"),
    (ENCODE, msgpack.packb({"items": [{"text": "\ud800"}]}, unicode_errors="surrogatepass")),
]

DOCUMENT = [
    # model, item, what the error names
    (DOCUMENTS, {"document": {"data": "", "format": "pdf"}}, "0 bytes"),
    (DOCUMENTS, {"document": {"data": b64(b"<html><h1>Hi</h1></html>"), "format": "pdf"}}, "html"),
    (DOCUMENTS, {"document": {"data": b64(b"%PDF-1.7\njunk"), "format": "pdf"}}, "PDF"),
    (DOCUMENTS, {"document": {"data": b64(photo()), "format": "docx"}}, "docx"),
    (PAGES, {"document": {"data": "", "format": "pdf"}}, "0 bytes"),
    (PAGES, {"document": {"data": b64(b"<html><h1>Hi</h1></html>"), "format": "pdf"}}, "html"),
    (PAGES, {"images": [{"data": b64(corrupt()), "format": "jpeg"}]}, "decoded"),
]


class Neighbours:
    """Callers who do nothing wrong, and go on asking all the while."""

    CALLS = (
        encode("a parcel for the harbour"),
        score("who asks?", "a neighbour asks"),
        extract("Ann met Bob in Oslo.", labels=["person"]),
    )

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._over = False
        self.answers: list[tuple[int, dict[str, Any]]] = []

    async def __aenter__(self) -> Neighbours:
        self.alone = await together(self._session, self.CALLS)
        # Each of them asks at least once while the mistakes are made, and to the end of them.
        self._going = [asyncio.create_task(self._ask(n)) for n in range(len(self.CALLS))]
        return self

    async def _ask(self, which: int) -> None:
        while not self._over:
            self.answers.append((which, await ask(self._session, self.CALLS[which])))

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await asyncio.gather(*self._going)
        assert [status for status, _ in self.alone] == [200] * 3
        for which, (status, body) in self.answers:
            assert status == 200, body
            alone = self.alone[which][1]
            if which == 0:
                np.testing.assert_allclose(vectors(body), vectors(alone), atol=1e-5)
            elif which == 1:
                assert body["scores"][0]["score"] == pytest.approx(alone["scores"][0]["score"], abs=1e-4)
            else:
                assert body["items"] == alone["items"]


async def refused(session: ClientSession, path: str, body: object, form: str) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with session.post(path, data=BytesIO(data), headers={"Content-Type": form}) as answer:
        said = (await answer.json())["detail"]
        assert answer.headers["X-SIE-Error-Code"] == said["code"]
        return answer.status, said


async def test_each_mistake_is_told_to_its_sender_and_to_nobody_else(server: Server):
    async with clients(server.url) as session:
        async with Neighbours(session):
            for path, body, status, code, named in REFUSED:
                got, said = await refused(session, path, body, "application/json")
                shown = (path, str(body)[:100], said)
                assert (got, said["code"]) == (status, code), shown
                assert named in said["message"], shown
            for path, body in PACKED:
                got, said = await refused(session, path, body, "application/msgpack")
                assert (got, said["code"]) == (400, "INVALID_INPUT"), (body, said)

        assert server.http.get("/readyz").status_code == 200
        assert server.total("serai_held_request_bytes") == 0


async def test_a_document_that_is_none_has_its_error_on_its_item(server: Server):
    good = {"document": {"data": b64(b"# Hello\n\nA plain text."), "format": "md"}}
    weights(PAGES)
    async with clients(server.url) as session:
        async with Neighbours(session):
            for model, item, named in DOCUMENT:
                items = [item, good] if model == DOCUMENTS else [item]
                status, body = await ask(session, (f"/v1/extract/{model}", {"items": items}))

                error = body["items"][0]["error"]
                assert (status, error["code"]) == (200, "INVALID_INPUT"), body
                assert named in error["message"]
                if model == DOCUMENTS:
                    assert "error" not in body["items"][1]
                    assert "# Hello" in body["items"][1]["data"]["markdown"]


async def test_odd_text_that_is_no_mistake_is_answered(server: Server):
    async with clients(server.url) as session:
        async with Neighbours(session):
            odd = ["a\0b", "a" * 2_000_000, "\r\n", "🐫" * 1000, "\u202e\ufeff\u200d"]
            answers = await together(session, [encode(text) for text in odd])

    assert [status for status, _ in answers] == [200] * len(odd)
    assert np.isfinite(np.concatenate([vectors(body) for _, body in answers])).all()
