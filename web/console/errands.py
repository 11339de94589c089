"""Replays and plans: each is a child process with a folder of its own, where what came of it stays.

A child writes how far it is as JSON lines; the loop only reads them. It ends with this server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web
from anyio import to_thread

from engine.errors import StillBusy
from web.errors import NotFound

RUNNING = "running"
KEPT = 200
"""Of each kind; the oldest that are over go when a new one begins."""

ENDING = 15.0
"""Seconds that a child has to write what it has, before it is killed."""

NICE = 5
LINE = 2**20
WORDS = 2000

Ended = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Errand:
    """One replay or plan, as its file tells it."""

    id: str
    kind: str
    source: str
    """The recording's name."""
    who: str
    began: float
    """Seconds since the epoch, as `ended`."""
    asked: Mapping[str, str]
    """As the form said it; what it left empty is not in it."""
    state: str = RUNNING
    """running, done, failed, stopped; interrupted where the server ended meanwhile."""
    ended: float | None = None
    code: int | None = None
    said: str = ""
    """The child's last words, where it failed."""


@dataclass(slots=True)
class Child:
    errand: Errand
    folder: Path
    process: asyncio.subprocess.Process
    ended: Ended
    progress: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""
    stopped: bool = False
    task: asyncio.Task[None] | None = None


class Errands:
    """The only owner of children and of their folders below `place`. One child of a kind at a time."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._children: dict[str, Child] = {}
        self._starting: set[str] = set()

    def running(self, kind: str) -> Errand | None:
        return next((c.errand for c in self._children.values() if c.errand.kind == kind), None)

    def progress(self, errand: Errand) -> Mapping[str, Any]:
        """The child's last line; nothing before the first."""
        child = self._children.get(errand.id)
        return child.progress if child else {}

    def folder(self, errand: Errand) -> Path:
        return self._place / f"{errand.kind}s" / errand.id

    async def begin(
        self,
        kind: str,
        source: str,
        who: str,
        asked: Mapping[str, str],
        command: Callable[[Path], Sequence[str]],
        environment: Mapping[str, str],
        ended: Ended,
    ) -> Errand:
        """Start `python -m web COMMAND`, with a folder of its own to write to. `ended` is called once it has.

        Raises StillBusy while another of this kind runs.
        """
        if kind in self._starting or self.running(kind):
            other = self.running(kind)
            of = f" of {other.source}, begun by {other.who}" if other else ""
            raise StillBusy(f"A {kind}{of} runs; a server has one at a time. Wait for it, or stop it.")
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
        errand = Errand(name, kind, source, who, time.time(), dict(asked))
        self._starting.add(kind)
        try:
            await to_thread.run_sync(self._make_room, errand)
            child = await self._start(errand, command(self.folder(errand).absolute()), environment, ended)
        finally:
            self._starting.discard(kind)
        self._children[errand.id] = child
        child.task = asyncio.create_task(self._watch(child))
        return errand

    async def stop(self, errand: Errand) -> None:
        """Ask the child to end; what a replay has measured until then is kept. Returns when it has ended."""
        child = self._children.get(errand.id)
        if child is None or child.task is None:
            return
        child.stopped = True
        _signal(child, signal.SIGTERM)
        done, _ = await asyncio.wait({child.task}, timeout=ENDING)
        if not done:
            _signal(child, signal.SIGKILL)
            await asyncio.wait({child.task})

    async def close(self) -> None:
        for child in list(self._children.values()):
            await self.stop(child.errand)

    async def delete(self, errand: Errand) -> None:
        """Raises StillBusy while it runs."""
        if errand.id in self._children:
            raise StillBusy(f"This {errand.kind} still runs; stop it first.")
        await to_thread.run_sync(shutil.rmtree, self.folder(errand))

    async def listed(self, kind: str) -> list[Errand]:
        """The newest first."""
        found = await to_thread.run_sync(lambda: list(self._read(kind)))
        return sorted(found, key=lambda errand: -errand.began)

    async def find(self, kind: str, name: str) -> Errand:
        """Raises NotFound."""
        for errand in await self.listed(kind):
            if errand.id == name:
                return errand
        raise NotFound(f"There is no {kind} {name[:60]!r}; it may have been deleted.")

    async def result(self, errand: Errand, name: str) -> Any:
        """What it wrote as JSON; None where it wrote nothing."""
        path = self.folder(errand) / name

        def read() -> Any:
            try:
                return json.loads(path.read_bytes())
            except (OSError, ValueError):
                return None

        return await to_thread.run_sync(read)

    def _read(self, kind: str) -> Iterator[Errand]:
        for path in (self._place / f"{kind}s").glob("*/errand.json"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                errand = Errand(**json.loads(path.read_bytes()))
                if errand.state == RUNNING and errand.id not in self._children:
                    errand = replace(errand, state="interrupted")
                yield errand

    def _make_room(self, errand: Errand) -> None:
        old = sorted(self._read(errand.kind), key=lambda each: -each.began)
        for each in old[KEPT - 1 :]:
            shutil.rmtree(self.folder(each), ignore_errors=True)
        folder = self.folder(errand)
        folder.mkdir(parents=True, mode=0o700)
        _write(folder, errand)

    async def _start(
        self, errand: Errand, command: Sequence[str], environment: Mapping[str, str], ended: Ended
    ) -> Child:
        folder = self.folder(errand)
        with (folder / "said").open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "web",
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=out,
                stderr=asyncio.subprocess.PIPE,
                env=dict(environment),
                limit=LINE,
                start_new_session=True,
            )
        if errand.kind == "plan":  # a replay has to send on time
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        return Child(errand, folder, process, ended)

    async def _watch(self, child: Child) -> None:
        assert child.process.stderr is not None
        try:
            with contextlib.suppress(ValueError):  # a line without an end
                async for line in child.process.stderr:
                    _hear(child, line)
            code = await child.process.wait()
        except asyncio.CancelledError:
            _signal(child, signal.SIGKILL)
            raise
        errand = replace(
            child.errand,
            state=_state(child, code),
            ended=time.time(),
            code=code,
            said=child.words.strip().removeprefix("Error: "),
        )
        await to_thread.run_sync(_write, child.folder, errand)
        del self._children[errand.id]
        await child.ended()


def _hear(child: Child, line: bytes) -> None:
    text = line.decode("utf-8", "replace")
    if text.startswith('{"progress"'):
        with contextlib.suppress(ValueError):
            child.progress = json.loads(text)["progress"]
            return
    child.words = (child.words + text)[-WORDS:]


def _state(child: Child, code: int) -> str:
    """A code of 1 is also how a command says that what it found is not good."""
    if child.stopped:
        return "stopped"
    wrote = any((child.folder / name).stat().st_size for name in ("said", "report.json") if _is(child, name))
    return "done" if code == 0 or (code == 1 and wrote) else "failed"


def _is(child: Child, name: str) -> bool:
    return (child.folder / name).is_file()


def _signal(child: Child, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, number)


def _write(folder: Path, errand: Errand) -> None:
    part = folder / "errand.part"
    part.write_text(json.dumps(asdict(errand)), "utf-8")
    part.replace(folder / "errand.json")


ERRANDS: web.AppKey[Errands] = web.AppKey("errands", Errands)
