"""`/v1/jobs`: one operation over many items, run as a batch of the server's own making."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
from aiohttp import web
from anyio import to_thread
from msgspec import Raw

from engine.access.principals import Principal
from engine.batches.kept import Batch, Job
from engine.batches.run import BROKEN, LATER
from engine.batches.shelf import Shelf
from engine.errors import BodyTooLarge, EngineError, InvalidInput, UnknownFile
from engine.requests import Task
from web import sending
from web.access import origin
from web.api import calls
from web.api.openai.files import CHUNK, asker
from web.engine import Engine
from web.errors import NotOffered, ResultGone
from web.keys import ENGINE, INTAKE
from web.wire import endpoints, job_calls, job_results
from web.wire import jobs as wire
from web.wire.bodies import Asked
from web.wire.decoding import decode
from web.wire.forms import Form
from web.wire.openai import files as listing

KEPT = 3600.0
"""Seconds for which an address of results is good. The job has a new one whenever it is asked."""
LONGEST_KEY = 256
MOST_BYTES = 8 * 2**20
"""Of a body with its items in it."""
CHECKING = 5.0
"""Seconds that a job's first item may take to prepare before the job is taken unchecked."""
USUAL, MOST = 1000, 10_000
"""Jobs on one page: the published client asks for one only."""


async def create(request: web.Request) -> web.Response:
    """It is on disk when this is answered, and runs from now on."""
    engine, who, intake = request.app[ENGINE], asker(request), request.app[INTAKE]
    key = _key(request)
    body = await intake.body(request)
    if len(body) > MOST_BYTES:  # read on the event loop, whatever is in it
        said = f"A job's body has at most {MOST_BYTES} bytes, not {len(body)}; upload its items as a file."
        raise BodyTooLarge(said)
    asked = decode(body, Form.JSON, job_calls.JobBody)
    items = job_calls.check(asked, min(engine.settings.max_items, engine.settings.batch_lines))
    job = Job(asked.operation, asked.model, key, job_calls.digest(body) if key else "")
    if before := engine.batches.made(who, job):  # its file and its model may be gone by now
        return sending.small(_told(request, before))
    spec = await calls.known(request, asked.model)
    engine.access.check_model(who, spec.id)
    task, _, reader = endpoints.of(job_calls.endpoint(asked))
    if task not in spec.tasks:
        raise InvalidInput(
            f"{spec.id} does not {task}; it is for {', '.join(spec.tasks)}.", param="operation"
        )
    lines = job_calls.calls(asked, _uploaded(engine, who, asked) if items is None else items)
    first = await to_thread.run_sync(next, lines, b"")
    if not first:
        raise InvalidInput(f"There are no items in {asked.src}.", param="src")
    await _check(request, task, asked.model, await intake.decoded(job_calls.body_of(first), reader))
    batch = await engine.batches.submit(who, job, job_calls.endpoint(asked), _gathered(first, lines))
    if batch.job is not job:  # it was made before, by its key
        return sending.small(_told(request, batch))
    return sending.small(wire.made(batch), status=201)


async def _check(request: web.Request, task: Task, model: str, first: Asked) -> None:
    """What would be refused of every item, because of the options, is told now: the first call is prepared,
    and not run. Whatever only time mends is none of it, nor is an item that is wrong itself."""
    _, made = await calls.of(request, task, model, first)
    try:
        with anyio.move_on_after(CHECKING):
            await request.app[ENGINE].estimate(made)
    except (*LATER, *BROKEN):
        return
    except EngineError as error:
        if error.item is None:
            raise


async def list_jobs(request: web.Request) -> web.Response:
    """One's own, the newest first, without where their results are."""
    batches = request.app[ENGINE].batches
    rows, more = listing.page(batches.shelf.jobs(asker(request)), request.query, USUAL, MOST)
    told = [wire.told(job, batches.counts(job), []) for job in rows]
    return sending.small({"object": "list", "data": told, "has_more": more})


async def show(request: web.Request) -> web.Response:
    """As it is now."""
    return sending.small(_told(request, _job(request)))


async def cancel(request: web.Request) -> web.Response:
    """Nothing new of it is begun; what was answered stays."""
    return sending.small(_told(request, await request.app[ENGINE].batches.cancel(_job(request).id)))


async def execute(request: web.Request) -> web.Response:
    """Plans are a control plane's."""
    job = _job(request)
    raise NotOffered(
        f"{job.id} has no plan to execute: plans belong to the connectors of a control plane, which this "
        "server has none of. Jobs run as soon as they are made."
    )


async def repair(request: web.Request) -> web.Response:
    """Nothing needs it."""
    job = _job(request)
    raise NotOffered(
        f"{job.id} needs no repair: repairs belong to the connectors of a control plane, which this server "
        "has none of. After a crash jobs go on by themselves; items that failed may be sent as a new job."
    )


async def results(request: web.Request) -> web.Response:
    """Whoever knows the address may read it: the published client brings no key here."""
    engine = request.app[ENGINE]
    job, chunk = _opened(engine, request.match_info["ref"])
    numbers = range(chunk * wire.CHUNK, (chunk + 1) * wire.CHUNK)
    shelf = engine.batches.shelf

    def packed() -> bytes:
        paths = [shelf.folder.path(file) for file in _kept(job, shelf)]
        found = [each for path in paths for each in engine.batches.places.among(path, numbers)]
        return job_results.packed(job, sorted(found))

    try:
        body = await to_thread.run_sync(packed)
    except FileNotFoundError:
        raise ResultGone from None
    return web.Response(body=body, content_type="application/octet-stream")


def _job(request: web.Request) -> Batch:
    return request.app[ENGINE].batches.shelf.job(asker(request), request.match_info["job"])


def _key(request: web.Request) -> str:
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise InvalidInput(f"Idempotency-Key is at most {LONGEST_KEY} printable ASCII characters.")
    return key


def _uploaded(engine: Engine, who: Principal, asked: job_calls.JobBody) -> Iterator[Raw]:
    """The items of the file that `src` names. Raises UnknownFile; what it gives is read in a thread."""
    shelf, settings = engine.batches.shelf, engine.settings
    file, said = shelf.file(who, (asked.src or "").removeprefix(job_calls.UPLOAD)), job_calls.fields(asked)

    def items() -> Iterator[Raw]:
        try:
            opened = shelf.path(file).open("rb")
        except FileNotFoundError:
            raise UnknownFile(f"The content of {file.id} is gone.") from None
        with opened:
            lines = iter(lambda: opened.readline(settings.max_body_bytes + 1), b"")
            yield from job_calls.of_lines(lines, said, settings.batch_lines, settings.max_body_bytes)

    return items()


async def _gathered(first: bytes, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Lines in pieces that are worth a write, made in a thread."""

    def piece() -> bytes:
        held = bytearray()
        for line in lines:
            held += line
            if len(held) >= CHUNK:
                break
        return bytes(held)

    yield first
    while held := await to_thread.run_sync(piece):
        yield held


def _told(request: web.Request, job: Batch) -> dict[str, Any]:
    batches = request.app[ENGINE].batches
    counts = batches.counts(job)
    if not job.ended:
        return wire.told(job, counts, [])
    there = bool(_kept(job, batches.shelf))
    refs = [_ref(request, job, chunk) if there else None for chunk in range(wire.pieces(counts.total))]
    return wire.told(job, counts, [wire.chunk(job, number, ref) for number, ref in enumerate(refs)])


def _kept(job: Batch, shelf: Shelf) -> list[str]:
    """Its files of results that are there still."""
    return [file for file in job.files if shelf.has(file)]


def _ref(request: web.Request, job: Batch, chunk: int) -> str:
    engine = request.app[ENGINE]
    scheme = "https" if origin.https(request) else "http"
    said = f"{job.id}.{chunk}.{int(engine.batches.clock() + KEPT)}"
    path = f"{engine.settings.base_path}/v1/jobs/results/{said}.{_mac(engine, said)}"
    return f"{scheme}://{origin.place(request)}{path}"


def _opened(engine: Engine, ref: str) -> tuple[Batch, int]:
    """The job and the chunk that an address was made for. Raises ResultGone."""
    said, _, mac = ref.rpartition(".")
    if not hmac.compare_digest(mac.encode("utf-8", "replace"), _mac(engine, said).encode()):
        raise ResultGone
    key, chunk, until = said.split(".")
    job = engine.batches.shelf.known(key)
    if job is None or not _kept(job, engine.batches.shelf) or engine.batches.clock() > int(until):
        raise ResultGone
    return job, int(chunk)


def _mac(engine: Engine, said: str) -> str:
    what = f"job results {said}".encode("utf-8", "replace")
    return hmac.new(engine.session_key, what, hashlib.sha256).hexdigest()[:40]
