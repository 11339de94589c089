"""`/v1/admin/recordings`: traffic that has a name, to be replayed and planned with elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from aiohttp import web
from anyio import to_thread
from msgspec import Meta, Struct

from engine.access.principals import Action
from engine.errors import BodyTooLarge, Forbidden, InvalidInput, UnknownRecording
from engine.records.views import PayloadWish
from web import sending
from web.access.current import may, who
from web.arriving import arriving
from web.keys import ENGINE, INTAKE
from web.scratch import scratch
from web.wire.decoding import decode
from web.wire.forms import Form

MOST_BYTES = 16 * 2**30

CHUNK = 2**18

Model = Annotated[str, Meta(max_length=200)]


class Payloads(Struct, forbid_unknown_fields=True):
    """What requests contain is to be kept too, of these models."""

    models: Annotated[list[Model], Meta(min_length=1, max_length=100)]
    seconds: Annotated[float, Meta(gt=0, le=7 * 86400)] = 3600.0
    max_bytes: Annotated[int, Meta(ge=1)] = 2**30


class Start(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=80)]
    reason: Annotated[str, Meta(max_length=500)] = ""
    payloads: Payloads | None = None


class Because(Struct, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(max_length=500)] = ""


class Trim(Struct, forbid_unknown_fields=True):
    """Without a name: of everything that no recording holds."""

    days: Annotated[float, Meta(ge=0, le=36500)]
    name: Annotated[str, Meta(max_length=80)] | None = None
    reason: Annotated[str, Meta(max_length=500)] = ""


async def list_recordings(request: web.Request) -> web.Response:
    """The newest first, and what the recorder does now."""
    recordings = request.app[ENGINE].recordings
    found = [asdict(info) for info in await recordings.infos()]
    return sending.small({"recordings": found, "recorder": asdict(recordings.view)})


async def show(request: web.Request) -> web.Response:
    """Raises UnknownRecording."""
    name = request.match_info["recording"]
    for info in await request.app[ENGINE].recordings.infos():
        if info.name == name:
            return sending.small(asdict(info))
    raise UnknownRecording(f"There is no recording {name[:100]!r}.")


async def start(request: web.Request) -> web.Response:
    """Begin one. What requests contain is kept only for an administrator, and for models that are named."""
    asked = decode(await request.app[INTAKE].body(request), Form.JSON, Start)
    engine, wish = request.app[ENGINE], None
    if asked.payloads is not None:
        if not may(request, Action.ADMINISTER):
            raise Forbidden("Only an administrator may have the content of requests recorded.")
        models = tuple(dict.fromkeys(engine.catalog.resolve(name)[0].id for name in asked.payloads.models))
        wish = PayloadWish(models, asked.payloads.seconds, asked.payloads.max_bytes)
    await engine.recordings.start(asked.name, who(request), asked.reason, wish)
    return sending.small({"recorder": asdict(engine.recordings.view)}, status=201)


async def stop(request: web.Request) -> web.Response:
    """End what runs; answers with its name."""
    body = await request.app[INTAKE].body(request)
    asked = decode(body, Form.JSON, Because) if body.strip() else Because()
    return sending.small({"name": await request.app[ENGINE].recordings.stop(who(request), asked.reason)})


async def delete(request: web.Request) -> web.Response:
    """Forget its name, and what was kept of its content; what came from a file goes too."""
    name = request.match_info["recording"]
    await request.app[ENGINE].recordings.delete(name, who(request))
    return sending.small({"deleted": name})


async def trim(request: web.Request) -> web.Response:
    """Keep the last days only, of a recording or of what no recording holds."""
    asked = decode(await request.app[INTAKE].body(request), Form.JSON, Trim)
    recordings = request.app[ENGINE].recordings
    await recordings.trim(asked.name, asked.days * 86400, who(request), asked.reason)
    return sending.small({"trimmed": asked.name})


async def export(request: web.Request) -> web.StreamResponse:
    """The recording as a file; with `shareable=true` without what could tell who asked for what."""
    name, said = request.match_info["recording"], request.query.get("shareable", "false")
    if said not in ("true", "false"):
        raise InvalidInput(f"shareable is true or false, not {said[:100]!r}.")
    async with scratch() as folder:
        path = folder / "recording.jsonl.gz"
        recordings = request.app[ENGINE].recordings
        await recordings.export(name, path, shareable=said == "true", who=who(request))
        response = web.StreamResponse(
            headers={"Content-Disposition": f'attachment; filename="{name}.jsonl.gz"'}
        )
        response.content_type = "application/gzip"
        response.content_length = path.stat().st_size
        await response.prepare(request)
        with path.open("rb") as file:  # at once, and closed at once: a thread's would be lost with its client
            while chunk := await to_thread.run_sync(file.read, CHUNK):
                if not await sending.write(response, chunk):
                    break
    return response


async def take_in(request: web.Request) -> web.Response:
    """The body is a file that was exported. A broken one is refused with its line, and changes nothing."""
    name = request.match_info["recording"]
    async with scratch() as folder:
        path = folder / "upload.jsonl.gz"
        with path.open("wb") as file:
            async for chunk in _body(request):
                await to_thread.run_sync(file.write, chunk)
        await request.app[ENGINE].recordings.take_in(name, path, who(request))
    return sending.small({"imported": name}, status=201)


async def _body(request: web.Request) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in arriving(request, "The file"):
        size += len(chunk)
        if size > MOST_BYTES:
            raise BodyTooLarge(f"A recording of more than {MOST_BYTES} bytes is not taken.")
        yield chunk
