"""`/v1/files`: what batches read and write."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web
from anyio import to_thread

from engine.access.principals import LOCAL, Principal
from engine.batches.batches import new_file
from engine.batches.kept import File
from engine.batches.shelf import DAY
from engine.errors import InvalidInput, UnknownFile
from web import sending
from web.access.current import current
from web.arriving import arriving
from web.intake import check_encoding
from web.keys import ENGINE
from web.multipart import Part, Parts
from web.wire.openai import files as wire

CHUNK = 2**20
LONGEST_FIELD = 4096
LONGEST_NAME = 255
MOST_FILES = 10_000
"""On one page."""


def asker(request: web.Request) -> Principal:
    return current(request) or LOCAL


async def create(request: web.Request) -> web.Response:
    """A form with the file and its purpose, as OpenAI's clients send it, or the bare content with
    `purpose` and `filename` in the query."""
    check_encoding(request)
    said: dict[str, str] = {}
    if request.content_type.startswith("multipart/"):
        name, content = await _of_form(request, said)
    else:
        wire.purpose(request.query.get("purpose", wire.PURPOSE))
        said.update(request.query)
        name = request.query.get("filename", "").encode("utf-8", "replace").decode()
        content = _gathered(arriving(request, "The file"))
    engine = request.app[ENGINE]
    now = engine.batches.clock()
    file = File(
        id=new_file(),
        owner=asker(request).id,
        filename=name[:LONGEST_NAME] or "file.jsonl",
        purpose=wire.PURPOSE,
        bytes=0,
        created_at=now,
        expires_at=now + engine.settings.file_days * DAY,
    )

    def seconds() -> float | None:
        return wire.lasting(wire.of_form(said), engine.settings.file_days)

    return sending.small(wire.told(await engine.batches.shelf.add(file, content, seconds)))


async def list_files(request: web.Request) -> web.Response:
    """The newest first, or as `order` says."""
    files, purpose = request.app[ENGINE].batches.shelf.files(asker(request)), request.query.get("purpose")
    found = [file for file in files if purpose in (None, file.purpose)]
    rows, more = wire.page(found, request.query, MOST_FILES, MOST_FILES)
    return sending.small(wire.listed([wire.told(file) for file in rows], more))


async def show(request: web.Request) -> web.Response:
    """One of them."""
    return sending.small(wire.told(_file(request)))


async def content(request: web.Request) -> web.StreamResponse:
    """What is in it."""
    file = _file(request)
    path = request.app[ENGINE].batches.shelf.path(file)
    try:
        opened = path.open("rb")  # at once, and closed at once: a thread's would be lost with its client
    except FileNotFoundError:
        raise UnknownFile(f"The content of {file.id} is gone.") from None
    with opened:
        response = web.StreamResponse()
        response.content_type = "application/jsonl"
        response.content_length = file.bytes
        await response.prepare(request)
        while chunk := await to_thread.run_sync(opened.read, CHUNK):
            if not await sending.write(response, chunk):
                break
    return response


async def delete(request: web.Request) -> web.Response:
    """It is gone when this is answered."""
    key = request.match_info["file"]
    await request.app[ENGINE].batches.shelf.delete(asker(request), key)
    return sending.small({"id": key, "object": "file", "deleted": True})


def _file(request: web.Request) -> File:
    return request.app[ENGINE].batches.shelf.file(asker(request), request.match_info["file"])


async def _of_form(request: web.Request, said: dict[str, str]) -> tuple[str, AsyncIterator[bytes]]:
    """The file's name, and what is in it. Other fields, which are `said`, may come after it."""
    parts = Parts(request)
    while (part := await parts.next()) is not None:
        if part.name == "file":
            return part.filename, _file_of(parts, part, said)
        said[part.name] = await part.text(LONGEST_FIELD)
    raise InvalidInput("The form has no part with the name file.", param="file")


async def _file_of(parts: Parts, part: Part, said: dict[str, str]) -> AsyncIterator[bytes]:
    if "purpose" in said:
        wire.purpose(said["purpose"])  # nothing of a file for another purpose is written
    async for chunk in _gathered(part.pieces()):
        yield chunk
    while (rest := await parts.next()) is not None:
        said[rest.name] = await rest.text(LONGEST_FIELD)
    wire.purpose(said.get("purpose"))


async def _gathered(arriving: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What arrives, in pieces that are worth a write."""
    held = bytearray()
    async for chunk in arriving:
        held += chunk
        if len(held) >= CHUNK:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)
