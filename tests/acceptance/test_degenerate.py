"""Inputs at the edges of what can be sent, on every route they fit: an answer in order or a typed refusal."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import numpy as np
import orjson
import pytest
from PIL import Image

from tests.acceptance.asking import DOCUMENTS, MINILM, NER, PHOTOS, RERANKER, WRITER
from tests.acceptance.serving import Server
from tests.engine.adapters.papers import encrypted_pdf, policy_pdf, word
from tests.weights import weights

JSON = {"Accept": "application/json", "Content-Type": "application/json"}
SURROGATE = "\ud800"

TEXTS: dict[str, str] = {
    "empty": "",
    "blank": " ",
    "line end": "\r\n",
    "nul": "\0",
    "half a pair": SURROGATE,
    "marks": "a" + "\u0301" * 10_000,
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u202e\u0645\u0631\u062d\u0628\u0627",
    "a megabyte": "a" * 1_000_000,
}
MANY = 513
FEW = 65
"""The same for the reranker, which reads each text with its query in twelve layers."""
VALUES: dict[str, Any] = {"null": None, "number": 3, "list": [["a"]], "map": {"a": 1}}


def _items(texts: list[Any]) -> list[Any]:
    return [{"text": text} for text in texts]


def _prompt(texts: list[Any]) -> Any:
    return texts[0] if texts else None


ROUTES: dict[str, tuple[str, Callable[[list[Any]], Any], Callable[[Any], int]]] = {
    # path, body for so many texts, and how many outputs an answer has
    "encode": (f"/v1/encode/{MINILM}", lambda t: {"items": _items(t)}, lambda a: len(a["items"])),
    "score": (
        f"/v1/score/{RERANKER}",
        lambda t: {"query": {"text": "who?"}, "items": _items(t)},
        lambda a: len({score["item_id"] for score in a["scores"]}),
    ),
    "extract": (f"/v1/extract/{NER}", lambda t: {"items": _items(t)}, lambda a: len(a["items"])),
    "generate": (
        f"/v1/generate/{WRITER.replace('/', '__')}",
        lambda t: {"prompt": _prompt(t), "max_new_tokens": 1},
        lambda a: 1,
    ),
    "embeddings": (
        "/v1/embeddings",
        lambda t: {"model": MINILM, "input": t},
        lambda a: len({one["index"] for one in a["data"]}),
    ),
    "chat": (
        "/v1/chat/completions",
        lambda t: {
            "model": WRITER,
            "messages": [{"role": "user", "content": _prompt(t)}],
            "max_tokens": 1,
        },
        lambda a: len(a["choices"]),
    ),
    "rerank": (
        "/v2/rerank",
        lambda t: {"model": RERANKER, "query": "who?", "documents": t},
        lambda a: len({one["index"] for one in a["results"]}),
    ),
    "tei embed": (f"/tei/{MINILM}/embed", lambda t: {"inputs": t}, len),
    "tei rerank": (
        f"/tei/{RERANKER}/rerank",
        lambda t: {"query": "who?", "texts": t},
        lambda a: len({one["index"] for one in a}),
    ),
}
SINGLE = ("generate", "chat")


def asked(server: Server, path: str, body: Any) -> tuple[int, Any]:
    """Status and answer; the surrogate goes as JSON spells it."""
    data = body if isinstance(body, bytes) else _spelled(body)
    answer = server.http.post(path, content=data, headers=JSON, timeout=30.0)
    return answer.status_code, answer.json()


def _spelled(body: Any) -> bytes:
    return json.dumps(body).encode()


def typed(status: int, said: Any) -> bool:
    """A refusal that a client can read, in the words of its route."""
    if not 400 <= status < 500:
        return False
    told = said.get("detail") or said.get("error") or said.get("message")
    return bool(told) and (isinstance(told, str) or bool(told.get("message")))


@pytest.mark.parametrize("route", ROUTES)
def test_every_text_is_answered_or_refused(server: Server, route: str) -> None:
    path, body, count = ROUTES[route]
    for name, text in TEXTS.items():
        sent = [text] if route in SINGLE else ["before", text, "after"]
        status, said = asked(server, path, body(sent))
        good = status == 200 and count(said) == len(sent)
        assert good or typed(status, said), (name, status, str(said)[:300])
        assert good or name in ("half a pair", "empty", "blank", "line end", "a megabyte", "marks"), (
            name,
            said,
        )


@pytest.mark.parametrize("route", [route for route in ROUTES if route not in SINGLE])
def test_every_number_of_items_is_answered_or_refused(server: Server, route: str) -> None:
    path, body, count = ROUTES[route]
    for many in (0, 1, FEW if "rank" in route or route == "score" else MANY):
        status, said = asked(server, path, body([f"text {n}" for n in range(many)]))
        if many:
            assert status == 200 and count(said) == many, (many, status, str(said)[:300])
        else:
            assert typed(status, said), (many, status, said)


@pytest.mark.parametrize("route", ROUTES)
def test_what_is_no_text_is_refused(server: Server, route: str) -> None:
    path, body, _ = ROUTES[route]
    for name, value in VALUES.items():
        status, said = asked(server, path, body([value] if route in SINGLE else ["good", value]))
        assert typed(status, said), (name, status, said)
    status, said = asked(server, path, b'{"x": "\xff\xfe"}')
    assert typed(status, said), (status, said)


def test_many_items_come_back_in_order_and_too_many_are_refused(server: Server) -> None:
    """5,000 at once are in tests/web/test_large.py, where no model runs."""
    items = [{"text": f"{n % 7}", "id": str(n)} for n in range(1200)]
    status, said = asked(server, f"/v1/encode/{MINILM}", {"items": items})

    assert status == 200
    assert [item["id"] for item in said["items"]] == [item["id"] for item in items]
    first, again = (np.float32(said["items"][n]["dense"]["values"]) for n in (3, 3 + 7 * 100))
    np.testing.assert_allclose(first, again, atol=1e-5)
    status, said = asked(server, f"/v1/encode/{MINILM}", {"items": [{"text": "a"}] * 5001})
    assert typed(status, said) and "5000" in said["detail"]["message"]


def test_equal_and_missing_ids_keep_their_places(server: Server) -> None:
    items = [{"text": "Berlin", "id": "x"}, {"text": "Rome"}, {"text": "Oslo", "id": "x"}]
    _, said = asked(server, f"/v1/extract/{NER}", {"items": items})

    assert [item["id"] for item in said["items"]] == ["x", "item-1", "x"]
    assert [item["entities"][0]["text"] for item in said["items"]] == ["Berlin", "Rome", "Oslo"]


LABELS = (
    # labels, status
    ([], 200),
    (["person", "person"], 200),
    ([f"label {n}" for n in range(200)], 400),
    ([f"label {n}" for n in range(1001)], 400),
)
NUMBERS: list[tuple[str, Any, int]] = [
    *[("/v2/rerank", {"model": RERANKER, "query": "q", "documents": ["a", "b"], "top_n": n}, status)
      for n, status in [(0, 400), (3, 200), (-1, 400)]],
    *[("/v1/embeddings", {"model": MINILM, "input": "a", "dimensions": n}, 400) for n in (0, -1, 385)],
    *[(f"/v1/extract/{NER}", {"items": [{"text": "Berlin"}], "params": {"labels": labels}}, status)
      for labels, status in LABELS],
    *[(f"/v1/extract/{NER}", {"items": [{"text": "Berlin"}], "params": {"options": {"threshold": n}}}, status)
      for n, status in [(0, 200), (1, 200), (1.01, 400)]],
]  # fmt: skip


def test_numbers_and_labels_at_their_bounds(server: Server) -> None:
    for path, body, expected in NUMBERS:
        status, said = asked(server, path, body)
        assert status == expected or (expected != 200 and typed(status, said)), (path, body, status, said)
        assert status == 200 or typed(status, said)


def _picture(mode: str, size: tuple[int, int], form: str, **saved: Any) -> bytes:
    out = BytesIO()
    Image.new(mode, size).save(out, form, **saved)
    return out.getvalue()


def _declared(width: int, height: int) -> bytes:
    """A PNG whose header says so; hardly any bytes follow."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


def _turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return _picture("RGB", (60, 40), "JPEG", exif=exif)


PICTURES: dict[str, tuple[bytes, int]] = {
    "cmyk": (_picture("CMYK", (50, 40), "JPEG"), 200),
    "turned": (_turned(), 200),
    "one pixel": (_picture("RGB", (1, 1), "PNG"), 200),
    "400 megapixels": (_declared(20_000, 20_000), 400),
    "a line": (_picture("L", (1, 20_000), "PNG"), 400),
    "nothing": (b"", 400),
    "cut off": (_picture("RGB", (400, 400), "JPEG")[:400], 400),
}


def test_pictures_at_their_bounds(server: Server) -> None:
    for name, (data, expected) in PICTURES.items():
        sent = {"items": [{"images": [{"data": base64.b64encode(data).decode()}]}]}
        status, said = asked(server, f"/v1/encode/{PHOTOS}", sent)
        assert status == expected and (status == 200 or typed(status, said)), (name, status, said)
    _, said = asked(
        server,
        f"/v1/encode/{PHOTOS}",
        {"items": [{"images": [{"data": base64.b64encode(PICTURES["400 megapixels"][0]).decode()}]}]},
    )
    assert "400000000" in said["detail"]["message"] and "100000000" in said["detail"]["message"]


def _papers() -> Iterator[tuple[str, bytes, str | None, str]]:
    """Name, bytes, what the sender calls it, and a word of the complaint."""
    yield "nothing", b"", None, "0 bytes"
    yield "cut off pdf", policy_pdf(1)[:600], "pdf", "cut off"
    yield "cut off docx", word()[:-200], "docx", "cut off"
    yield "encrypted", encrypted_pdf(), "pdf", "encrypted"
    yield "mislabelled", policy_pdf(1), "docx", "content is pdf"


def test_broken_documents_fail_alone_and_the_good_one_is_read(server: Server) -> None:
    weights(DOCUMENTS)
    broken = list(_papers())
    documents = [(data, said) for _, data, said, _ in broken] + [(word(), None)]
    items = [
        {"document": {"data": base64.b64encode(data).decode(), **({"format": said} if said else {})}}
        for data, said in documents
    ]
    status, said = asked(server, f"/v1/extract/{DOCUMENTS}", {"items": items})

    assert status == 200, said
    for (name, _, _, words), item in zip(broken, said["items"], strict=False):
        assert words in item["error"]["message"], (name, item["error"])
    assert "Flood policy" in said["items"][-1]["data"]["markdown"]


def test_a_text_that_was_cut_is_told_wherever_it_was_sent(server: Server) -> None:
    long = "a parcel for the harbour " * 400
    before = server.total("serai_truncated_total", model=MINILM)
    calls = [
        (f"/v1/encode/{MINILM}", {"items": [{"text": long}, {"text": "a"}, {"text": long}]}, "2"),
        ("/v1/embeddings", {"model": MINILM, "input": [long]}, "1"),
        (f"/tei/{MINILM}/embed", {"inputs": [long]}, "1"),
        ("/v2/rerank", {"model": RERANKER, "query": "q", "documents": [long, "a"]}, "1"),
        (f"/tei/{RERANKER}/predict", {"inputs": [["q", long], ["r", long]]}, "2"),
        (f"/v1/encode/{MINILM}", {"items": [{"text": "short"}]}, None),
    ]
    for path, body, told in calls:
        answer = server.http.post(path, content=orjson.dumps(body), headers=JSON)
        assert answer.status_code == 200, answer.text
        assert answer.headers.get("X-Serai-Truncated") == told, path
        if path.startswith("/v1/encode"):
            assert answer.json()["usage"].get("truncated") == (int(told) if told else None)
    server.until(lambda: server.total("serai_truncated_total", model=MINILM) == before + 4)
    refused = {"items": [{"text": long}], "params": {"options": {"overflow_policy": "error"}}}
    status, said = asked(server, f"/v1/encode/{MINILM}", refused)
    assert (status, said["detail"]["code"]) == (400, "INPUT_TOO_LONG")
    assert said["detail"]["length"] > said["detail"]["max_length"] == 256
