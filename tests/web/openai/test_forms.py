"""Forms that are broken, or whose names are no text: told to their sender, and nothing is kept of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession
from sqlite_utils import Database

from engine.batches import shelf
from engine.batches.kept import File
from tests.web.conftest import serving
from tests.web.openai.test_batches import Clock, made

ROUTES = ["/v1/files", "/v1/audio/transcriptions"]
ENDED = b"\r\n--X--\r\n"


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[ClientSession]:
    db = Database(memory=True)
    async with serving(made(db, tmp_path, Clock())) as url, ClientSession(url) as session:
        yield session
    db.close()


pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::aiohttp.BadContentDispositionHeader"),
    pytest.mark.filterwarnings("ignore::aiohttp.BadContentDispositionParam"),
]


def part(
    name: bytes = b"file", filename: bytes = b"a.jsonl", more: bytes = b"", content: bytes = b"{}"
) -> bytes:
    names = b'name="%s"; filename="%s"' % (name, filename)
    return b"--X\r\nContent-Disposition: form-data; %s\r\n%s\r\n%s" % (names, more, content)


async def sent(http: ClientSession, route: str, body: bytes) -> tuple[int, str]:
    """The status, and what was told or the file's name."""
    headers = {"Content-Type": "multipart/form-data; boundary=X"}
    async with http.post(route, data=body, headers=headers) as response:
        told = await response.json()
    return response.status, told["filename"] if response.status == 200 else told["error"]["message"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"--X\r\naaaa", id="cut off in a head"),
        pytest.param(part(filename=b"a\0b") + ENDED, id="a NUL in the name"),
        pytest.param(part(filename=b"a" * 100_000) + ENDED, id="a long name"),
        pytest.param(part(more=b"A: b\r\n" * 20_000) + ENDED, id="many headers"),
        pytest.param(part(content=b"{}"), id="cut off in the content"),
        pytest.param(part() + b"\r\n--X\r\naaaa", id="cut off in the head after the file"),
        pytest.param(part(b"_charset_", content=b"x" * 40) + ENDED, id="no charset"),
        pytest.param((part(b"purpose", content=b"batch") + b"\r\n") * 100, id="many parts"),
        pytest.param(
            b"--X\r\nContent-Type: multipart/mixed; boundary=Y\r\n\r\n--Y--" + ENDED, id="a form in it"
        ),
        pytest.param(
            b"--X\r\nContent-Disposition: form-data; name*0*=a'b\r\n\r\na" + ENDED, id="half a name"
        ),
    ],
)
async def test_a_broken_form_is_its_senders_mistake(
    http: ClientSession, tmp_path: Path, route: str, body: bytes
) -> None:
    status, told = await sent(http, route, body)

    assert status == 400 and "form" in told, told
    assert not list(tmp_path.glob("files/*"))  # noqa: ASYNC240 - a handful of names


async def test_bytes_that_are_no_text_are_taken_out_of_a_files_name(http: ClientSession) -> None:
    purpose = part(b"purpose", content=b"batch") + b"\r\n"

    assert await sent(http, "/v1/files", purpose + part(filename=b"a\xff\xfe.jsonl") + ENDED) == (
        200,
        "a??.jsonl",
    )
    async with http.post("/v1/files?filename=a%ff%fe.jsonl", data=b"{}") as response:
        assert response.status == 200
    async with http.get("/v1/files") as response:
        assert len((await response.json())["data"]) == 2


async def test_a_caller_has_so_many_files(http: ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "MOST_KEPT", 2)
    statuses = []
    for _ in range(3):
        async with http.post("/v1/files", data=b"{}") as response:
            statuses.append(response.status)
            told = await response.json()
    assert statuses == [200, 200, 507]
    assert (told["error"]["code"], "at most 2 files" in told["error"]["message"]) == ("storage_full", True)


async def test_what_is_deleted_makes_room_for_others(tmp_path: Path) -> None:
    db = Database(memory=True)
    engine = made(db, tmp_path, Clock(), files_bytes=100)
    async with serving(engine) as url, ClientSession(url) as http:
        content = b"a" * 60
        async with http.post("/v1/files", data=content) as response:
            key = (await response.json())["id"]
        async with http.post("/v1/files", data=content) as response:
            assert response.status == 507
        async with http.delete(f"/v1/files/{key}") as response:
            assert response.status == 200
        async with http.post("/v1/files", data=content) as response:
            assert response.status == 200
    db.close()


async def test_what_arrives_while_a_server_starts_is_not_taken_for_a_crashs_remains(tmp_path: Path) -> None:
    db = Database(memory=True)
    box = made(db, tmp_path, Clock()).batches.shelf
    file = File(id="file-a", owner="x", filename="a", purpose="batch", bytes=0, created_at=0, expires_at=9e9)
    lost = tmp_path / "files" / "file-lost.part"
    lost.parent.mkdir()
    lost.write_bytes(b"half")

    async def content() -> AsyncIterator[bytes]:
        await box.tidy()
        yield b"{}"

    await box.add(file, content())

    assert box.path(file).read_bytes() == b"{}" and not lost.exists()
    db.close()


async def test_a_caller_has_so_many_batches(http: ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    async with http.post("/v1/files", data=b"{}") as response:
        key = (await response.json())["id"]
    monkeypatch.setattr(shelf, "MOST_KEPT", 1)
    body = {"input_file_id": key, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    statuses = []
    for _ in range(2):
        async with http.post("/v1/batches", json=body) as response:
            statuses.append(response.status)
    assert statuses == [200, 507]
