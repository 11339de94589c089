"""One batch on its way: its lines become calls, and their answers lines of its files."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup

from engine import errors
from engine.batches import lines
from engine.batches.answers import Answers
from engine.batches.kept import PART, Batch, Complaint, Spent, Status, last
from engine.batches.lines import Answered, Checked, Line, Result, Wrong
from engine.batches.progress import Pace, Progress
from engine.batches.shelf import DAY, Shelf
from engine.config import Settings
from engine.errors import EngineError

log = logging.getLogger(__name__)

GROUP = 32
EVERY = 0.2
"""Answers are written by so many, or after so many seconds: what a crash has done again."""
UNWRITTEN = 4 * GROUP
"""Answers that may wait for the disk."""
DISK_PAUSE = 5.0
"""Seconds between tries to write where the disk is full."""

LATER = (errors.QueueFull, errors.StillLoading, errors.Paused, errors.RateLimited, errors.Stopped)
"""Nothing is wrong with the line: it waits."""
BROKEN = (errors.ResourceExhausted, errors.RunnerCrashed)
"""The line may be what is wrong: it is tried a few times."""


class Caller(Protocol):
    """Who has calls run, as their routes do, and tells errors as they do."""

    async def answer(self, batch: Batch, call: Line, request_id: str) -> bytes:
        """The whole answer as JSON. Raises EngineError."""
        ...

    def refusal(self, batch: Batch, error: EngineError, request_id: str) -> tuple[int, bytes]:
        """Status and body."""
        ...


class Run:
    """`go` once; what it finds on disk was done before."""

    def __init__(
        self, key: str, shelf: Shelf, caller: Caller, clock: Callable[[], float], settings: Settings
    ) -> None:
        self._key = key
        self._shelf = shelf
        self._caller = caller
        self._clock = clock
        self._settings = settings
        self._pace = Pace()
        self._stopping = False
        self._finished = False
        self._roused = anyio.Event()
        self._some = anyio.Event()
        self._unwritten: list[tuple[int, Result]] = []
        self._answers: Answers | None = None
        self.progress = Progress(self._batch.counts.total)

    @property
    def spent(self) -> Spent:
        """By what is written."""
        return Spent() if self._answers is None else self._answers.spent

    @property
    def _batch(self) -> Batch:
        return self._shelf.current(self._key)

    def rouse(self) -> None:
        """Something has changed: look again."""
        self._roused.set()

    def stop(self) -> None:
        """Begin nothing new; `go` returns when what is under way has ended."""
        self._stopping = True
        self.rouse()

    async def go(self) -> None:
        """Until it has ended, or `stop` was called. Raises EngineError where the disk refuses."""
        try:
            checked = await to_thread.run_sync(self._checked)
            if checked.complaints:
                complaints = tuple(checked.complaints)
                await self._change(lambda batch: batch.refused(complaints, self._clock()))
                return
            await self._change(lambda batch: batch.begun(len(checked.starts), self._clock()))
            answers = self._answers = await to_thread.run_sync(Answers, self._batch, self._shelf.folder)
        except OSError as error:
            raise EngineError(f"The files of {self._key} cannot be used: {error}") from None
        try:
            self.progress = Progress(len(checked.starts), *await to_thread.run_sync(answers.known))
            await self._lines(checked.starts, answers)
            await self._end(answers, checked.starts)
        except OSError as error:
            raise EngineError(f"The files of {self._key} cannot be used: {error}") from None
        finally:
            answers.close()

    def _checked(self) -> Checked:
        batch, settings = self._batch, self._settings
        path = self._shelf.folder.path(batch.input_file_id)
        most = max(batch.counts.total, settings.batch_lines)  # one that runs outlives a smaller setting
        try:
            return lines.check(path, batch.endpoint, most, settings.max_body_bytes)
        except FileNotFoundError:
            said = f"The content of {batch.input_file_id} is gone."
            return Checked(complaints=[Complaint("missing_file", said)])

    async def _lines(self, starts: Sequence[int], answers: Answers) -> None:
        async with anyio.create_task_group() as writing:
            async with anyio.create_task_group() as calls:
                writing.start_soon(self._write, answers)
                while (wait := self._step(calls, starts)) is not None:
                    with anyio.move_on_after(wait):
                        await self._roused.wait()
                    self._roused = anyio.Event()
                if not self._stopping:
                    calls.cancel_scope.cancel()
            self._finished = True
            self._some.set()

    def _step(self, calls: TaskGroup, starts: Sequence[int]) -> float | None:
        """Begin what may begin. Seconds until there may be more; None when it is over."""
        if self._over():
            return None
        while len(self._unwritten) < UNWRITTEN:
            wait = self._pace.wait(anyio.current_time())
            if wait != 0.0:
                return min(math.inf if wait is None else wait, self._left())
            number = self.progress.take()
            if number is None:
                break
            self._pace.began()
            calls.start_soon(self._call, number, starts[number])
        return self._left()

    def _over(self) -> bool:
        return self._stopping or last(self._batch, self.progress.complete, self._clock()) is not None

    def _left(self) -> float:
        return max(0.0, self._batch.expires_at - self._clock())

    async def _call(self, number: int, start: int) -> None:
        request_id, batch = lines.result_id(self._batch, number), self._batch
        path = self._shelf.folder.path(batch.input_file_id)
        answered = False
        try:
            call = await to_thread.run_sync(_read, path, start)
            try:
                answer = Answered(200, request_id, msgspec.Raw(await self._answer(batch, call, request_id)))
            except EngineError as error:
                if self._waits(number, error):
                    return
                status, body = self._caller.refusal(batch, error, request_id)
                answer = Answered(status, request_id, msgspec.Raw(body))
            self._unwritten.append((number, Result(request_id, call.custom_id, answer)))
            answered = True
            self._pace.done()
        finally:
            if not answered:
                self.progress.back(number)
            self._some.set()
            self.rouse()

    async def _answer(self, batch: Batch, call: Line, request_id: str) -> bytes:
        try:
            return await self._caller.answer(batch, call, request_id)
        except EngineError:
            raise
        except Exception:
            log.exception("%s failed", request_id)
            raise EngineError from None

    def _waits(self, number: int, error: EngineError) -> bool:
        """Whether the line is to be tried again, when the error says."""
        if not isinstance(error, LATER) and not (isinstance(error, BROKEN) and self.progress.tried(number)):
            return False
        wait = error.retry_after
        self._pace.refused(1.0 if wait is None else wait, anyio.current_time())
        return True

    async def _write(self, answers: Answers) -> None:
        """Whatever was answered, in groups, until all of it is written."""
        while not (self._finished and not self._unwritten):
            await self._some.wait()
            self._some = anyio.Event()
            if not self._unwritten:
                continue
            if len(self._unwritten) < GROUP and not self._finished:
                await anyio.sleep(EVERY)
            group, self._unwritten = self._unwritten, []
            for good in (True, False):
                told = [(number, result) for number, result in group if _good(result) is good]
                if not await self._append(answers, [result for _, result in told], good):
                    return
                for number, _ in told:
                    self.progress.written(number, good)
            self.rouse()

    async def _append(self, answers: Answers, results: Sequence[Result], good: bool) -> bool:
        """Where the disk is full, again and again; False where that makes no sense any more."""
        while True:
            try:
                await to_thread.run_sync(partial(answers.append, results, good=good))
                return True
            except OSError as error:
                log.error("the answers of %s cannot be written: %s", self._key, error)
            self.rouse()
            if self._over():
                return False
            await anyio.sleep(DISK_PAUSE)

    async def _end(self, answers: Answers, starts: Sequence[int]) -> None:
        now = self._clock()
        status = last(self._batch, self.progress.complete, now)
        if status is None:
            return
        if status is Status.EXPIRED:
            await self._expire(answers, starts)
        if status is Status.COMPLETED:
            await self._change(lambda batch: batch.to(Status.FINALIZING, now))
        kept = self._batch.output_seconds or self._settings.file_days * DAY
        files = {file.id: file for file in answers.files(now, kept)}

        def ended(batch: Batch) -> Batch:
            counts, spent = self.progress.counts, answers.spent
            parts = self.progress.parts(PART) if batch.job else ()
            told = msgspec.structs.replace(batch, counts=counts, spent=spent, parts=parts, files=tuple(files))
            return told.to(status, now)

        await self._shelf.change(self._key, ended, files)
        await to_thread.run_sync(answers.drop_empty)

    async def _expire(self, answers: Answers, starts: Sequence[int]) -> None:
        """Lines that were not answered in time are told so, each."""
        batch = self._batch
        path = self._shelf.folder.path(batch.input_file_id)
        why = Wrong("batch_expired", "The completion window was over before this line was run.")
        left = self.progress.left()
        for at in range(0, len(left), GROUP):
            group = left[at : at + GROUP]
            calls = [await to_thread.run_sync(_read, path, starts[number]) for number in group]
            results = [
                Result(lines.result_id(batch, number), call.custom_id, None, why)
                for number, call in zip(group, calls, strict=True)
            ]
            if not await self._append(answers, results, False):
                return
            self.progress.expired(group)

    async def _change(self, change: Callable[[Batch], Batch]) -> None:
        await self._shelf.change(self._key, change)


def _good(result: Result) -> bool:
    return result.response is not None and result.response.status_code == 200


def _read(path: Path, start: int) -> Line:
    with path.open("rb") as file:
        return lines.read(file, start)
