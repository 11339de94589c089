"""An SGLang server of one model: started, kept alive, put to sleep and woken. Says nothing of answers."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.adapters.sglang_server.flags import ENVIRONMENT, Grant
from engine.adapters.sglang_server.meter import Meter
from engine.adapters.sglang_server.process import Process
from engine.adapters.sglang_server.wire import BROKEN, HOST, Refused, Wire
from engine.errors import EngineError, LoadFailed, Stopped

log = logging.getLogger(__name__)

PAUSES = (0.0, 2.0, 8.0)
"""Seconds before each try to bring it back; one more death without an answer is too many."""
REST = 60.0
"""Seconds after which one that was given up may be asked for again."""
QUIET_SECONDS = 15.0
"""How long it may take until nothing runs, before it is ended rather than put to sleep."""
LOOK = 0.05
LEAST_RELEASED = 0.9
"""Share of weights and KV that must be seen to come free."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a server is started; each start adds a port and a key of its own."""

    model: str
    command: Callable[[], Sequence[str]]
    grant: Grant
    start_seconds: float


class Server:
    """`advance` of its model is its only caller while it is up; `close` may come from any thread."""

    def __init__(self, plan: Plan, meter: Meter) -> None:
        self._plan = plan
        self._meter = meter
        self._process: Process | None = None
        self._wire: Wire | None = None
        self._closed = threading.Event()
        self._coming: threading.Thread | None = None
        self._deaths = 0
        self._given_up: EngineError | None = None
        self._rested_at = 0.0
        self.pool_tokens = plan.grant.pool_tokens
        """What its KV really holds."""

    @property
    def wire(self) -> Wire | None:
        """Where to send; None while it is not up."""
        process = self._process
        return self._wire if process is not None and process.alive else None

    @property
    def pids(self) -> frozenset[int]:
        process = self._process
        return process.pids if process else frozenset()

    def start(self) -> None:
        """Waits until it answers. Raises LoadFailed with its last words, ResourceExhausted, Stopped."""
        self._wire = None
        port, key = _free_port(), secrets.token_hex(24)
        words = [*self._plan.command(), "--port", str(port), "--admin-api-key", key]
        try:
            self._process = process = Process(words, ENVIRONMENT, key)
        except OSError as error:
            raise LoadFailed(f"SGLang cannot be started: {error}", permanent=False) from error
        wire = Wire(port, key)
        try:
            self._await(process, wire)
            self._size(wire)
        except BaseException:
            process.kill()
            self._process = None
            raise
        process.be_discreet()
        self._wire = wire

    def _await(self, process: Process, wire: Wire) -> None:
        until = time.monotonic() + self._plan.start_seconds
        while not wire.ready():
            if self._closed.wait(LOOK):
                raise Stopped(f"{self._plan.model} was unloaded while it started.")
            if not process.alive:
                raise self._failed(f"{process.cause} while it started", process)
            if time.monotonic() > until:
                raise self._failed(f"was not ready after {self._plan.start_seconds:g} s", process)

    def _size(self, wire: Wire) -> None:
        try:
            told = wire.loads().max_total_tokens
        except (Refused, ValueError, *BROKEN) as error:
            raise LoadFailed(f"SGLang does not say how much it holds: {error}", permanent=False) from error
        self.pool_tokens = min(self._plan.grant.pool_tokens, told or self._plan.grant.pool_tokens)

    def _failed(self, what: str, process: Process) -> LoadFailed:
        said = process.last_words() or "nothing"
        log.error("the SGLang server of %s %s; it said: %s", self._plan.model, what, said)
        text = f"The SGLang server of {self._plan.model} {what}. It said: {said[-600:]}"
        return LoadFailed(text, error_class="SGLang", permanent=False)

    def answered(self) -> None:
        """It does what it is for: earlier deaths do not count any more."""
        self._deaths = 0

    def broke(self) -> None:
        """An answer stopped in its middle: it is dying, and ended rather than waited for."""
        process = self._process
        if process is None:
            return
        process.kill()
        log.error(
            "the SGLang server of %s %s; it was at: %s",
            self._plan.model,
            process.cause,
            process.last_words() or "unknown",
        )
        self._process, self._wire = None, None
        self._deaths += 1

    def revive(self, tell: Callable[[], None]) -> EngineError | None:
        """Sees to it that it comes back, beside the caller; `tell` is called when that is decided.

        What to say to those who wait, when it has died too often.
        """
        if self.wire is not None or (self._coming is not None and self._coming.is_alive()):
            return None
        self.broke()
        if self._given_up:
            if (rest := self._rested_at - time.monotonic()) > 0:
                return self._given_up.after(rest)
            self._given_up, self._deaths = None, 0
        name = f"restart of {self._plan.model}"
        self._coming = threading.Thread(target=self._come_back, args=(tell,), name=name, daemon=True)
        self._coming.start()
        return None

    def _come_back(self, tell: Callable[[], None]) -> None:
        error: EngineError = LoadFailed(f"The SGLang server of {self._plan.model} died again and again.")
        while self._deaths <= len(PAUSES):
            if self._closed.wait(PAUSES[max(0, self._deaths - 1)]):
                return
            try:
                self.start()
            except EngineError as failed:
                error, self._deaths = failed, self._deaths + 1
                continue
            log.warning("the SGLang server of %s is back", self._plan.model)
            tell()
            return
        self._rested_at = time.monotonic() + REST
        self._given_up = error
        tell()

    def sleep(self) -> int:
        """Gives the card's memory back, weights kept in host memory: how many bytes those are.

        Nobody may send from now on until `wake`. Raises when it cannot be done; it is then ended.
        """
        try:
            wire = self.wire
            if wire is None:
                raise LoadFailed("it is not up", permanent=False)
            self._quieten(wire)
            before = self._meter.held(self.pids)
            wire.release()
            self._check(before)
        except BaseException:
            self.close()
            raise
        return self._plan.grant.weights_bytes

    def _quieten(self, wire: Wire) -> None:
        """Waits until nothing runs or waits there: a release in the middle of work kills it."""
        until = time.monotonic() + QUIET_SECONDS
        while (loads := wire.loads()).running or loads.waiting:
            if time.monotonic() > until:
                raise LoadFailed("its work does not end", permanent=False)
            wire.abort_all()
            self._closed.wait(LOOK)

    def _check(self, before: int | None) -> None:
        """Where nobody can tell, its word is taken."""
        after = self._meter.held(self.pids)
        if before is None or after is None:
            return
        wanted = LEAST_RELEASED * (self._plan.grant.weights_bytes + self._plan.grant.kv_bytes)
        if before - after < wanted:
            text = f"it gave back {before - after >> 20} MiB of {int(wanted) >> 20}"
            raise LoadFailed(text, permanent=False)

    def wake(self) -> None:
        """It answers again; one that does not come back from sleep is started anew. Raises as `start`."""
        try:
            wire = self.wire
            if wire is not None:
                wire.resume()
                wire.probe()
                return
            log.warning("the SGLang server of %s died in its sleep", self._plan.model)
        except (Refused, ValueError, *BROKEN) as error:
            log.warning("the SGLang server of %s does not wake: %s", self._plan.model, error)
        if self._process is not None:
            self._process.kill()
            self._process = None
        self.start()

    def close(self) -> None:
        """It and all that it started are gone, also in the middle of a start."""
        self._closed.set()
        coming = self._coming
        if coming is not None and coming is not threading.current_thread():
            coming.join()
        process, self._process, self._wire = self._process, None, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.end()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        return int(taken.getsockname()[1])
