"""A file that a form uploads, and what recording it makes: one of ours, or a trace in a known form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from aiohttp import web
from anyio import BrokenWorkerProcess, CapacityLimiter, to_process, to_thread

from engine.errors import BodyTooLarge, DeadlineExceeded, InvalidInput
from replay.trace import BadTrace, Trace
from web.multipart import Part, Parts
from web.scratch import scratch

MOST_BYTES = 512 * 2**20
MOST_FIELD = 4096
MOST_SECONDS = 300.0
"""Reading that takes longer is ended with its process."""
ENDINGS = (".jsonl.gz", ".csv.gz", ".jsonl", ".ndjson", ".csv", ".gz")

_AT_ONCE = CapacityLimiter(1)


@asynccontextmanager
async def uploaded(request: web.Request) -> AsyncIterator[tuple[Mapping[str, str], Path]]:
    """The form's fields and its file, for as long as the block lasts. Raises InvalidInput, BodyTooLarge."""
    if request.content_type != "multipart/form-data":
        raise InvalidInput("This address takes the form of its page, with a file.")
    if (request.content_length or 0) > MOST_BYTES:
        raise BodyTooLarge(f"A file of more than {MOST_BYTES // 2**20} MiB is not taken here; use the CLI.")
    async with scratch() as folder:
        yield await _parts(request, folder)


async def _parts(request: web.Request, folder: Path) -> tuple[Mapping[str, str], Path]:
    fields: dict[str, str] = {}
    path: Path | None = None
    parts = Parts(request)
    while (part := await parts.next()) is not None:
        if part.name != "file":
            fields[part.name] = (await part.text(MOST_FIELD)).strip()
            continue
        if path is not None:
            raise InvalidInput("This form takes one file at a time.")
        path = folder / f"upload{_ending(part.filename)}"
        fields["filename"] = part.filename
        await _save(part, path)
    if path is None or not fields["filename"]:
        raise InvalidInput("Choose a file to take in.")
    return fields, path


async def _save(part: Part, path: Path) -> None:
    size = 0
    with path.open("wb") as file:
        while chunk := await part.read():
            size += len(chunk)
            if size > MOST_BYTES:
                raise BodyTooLarge(f"A file of more than {MOST_BYTES // 2**20} MiB is not taken here.")
            await to_thread.run_sync(file.write, chunk)


def _ending(name: str) -> str:
    """What tells how to read it; the name itself is the sender's and goes nowhere."""
    low = name.lower()
    return next((ending for ending in ENDINGS if low.endswith(ending)), ".csv")


async def as_recording(path: Path, fields: Mapping[str, str]) -> tuple[Path, tuple[str, ...]]:
    """The file of a recording, and what reading had to mend. Raises InvalidInput saying what is wrong."""
    called = fields["filename"][:100]
    try:
        async with _AT_ONCE:
            with anyio.fail_after(MOST_SECONDS):
                return await to_process.run_sync(_converted, path, dict(fields), cancellable=True)
    except BadTrace as error:
        raise InvalidInput(str(error).replace(str(path), called)[:1000]) from None
    except BrokenWorkerProcess:
        raise InvalidInput(f"{called} cannot be read: the process that tried has died.") from None
    except TimeoutError:
        raise DeadlineExceeded(f"{called} is not read after {MOST_SECONDS:.0f} s; use the CLI.") from None


def _converted(path: Path, fields: Mapping[str, str]) -> tuple[Path, tuple[str, ...]]:
    """In the child. As `serai record import` does it."""
    from replay.formats import reading, writing
    from web.cli.traces import is_recording

    if is_recording(path):
        return path, ()
    unit = fields.get("unit") or "1"
    try:
        seconds = float(unit)
    except ValueError:
        raise BadTrace(f"The time unit is a number of seconds, not {unit[:40]!r}.") from None
    trace = reading.read(
        path,
        form=fields.get("form") or None,
        mapping=_pairs(fields.get("map", "")) or None,
        time_unit=seconds,
        model=Path(fields["filename"]).name.partition(".")[0] or None,
    )
    out = path.with_name("recording.jsonl.gz")
    writing.write(trace.renamed(_names(trace, fields.get("as", ""))), out, "recording", "")
    return out, trace.notes


def _names(trace: Trace, said: str) -> Mapping[str, str]:
    """`code=MODEL, chat=OTHER`; a single model is meant for all of them."""
    return _pairs(said) if "=" in said or not said else dict.fromkeys(trace.models, said)


def _pairs(said: str) -> dict[str, str]:
    """`a=b, c=d`."""
    found = {}
    for each in filter(None, (part.strip() for part in said.replace("\n", ",").split(","))):
        name, separator, value = each.partition("=")
        if not separator or not name.strip() or not value.strip():
            raise BadTrace(f"{each[:100]!r} is not NAME=VALUE.")
        found[name.strip()] = value.strip()
    return found
