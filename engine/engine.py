"""The engine as the edge sees it: ask for something, look at a copy, or have an operator's will done."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from engine.actors.actor import Address, Mailbox, Reply
from engine.actors.messages import (
    Conclude,
    Intend,
    Load,
    MemoryMessage,
    Pin,
    RouterMessage,
    StateMessage,
    Submit,
    Unload,
    Unpin,
)
from engine.catalog import Catalog
from engine.config import Settings
from engine.errors import DeadlineExceeded, EngineError, Stopped
from engine.events import AnswerEncoded
from engine.requests import Delta, Request, Response
from engine.view import EngineView

T = TypeVar("T")


class Engine:
    """Its actors run in the task group that opened it; see `engine/running.py`."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        settings: Settings,
        session_key: bytes,
        router: Mailbox[RouterMessage],
        memory: Mailbox[MemoryMessage],
        state: Mailbox[StateMessage] | None,
        telemetry: Address[AnswerEncoded],
        view: Callable[[], EngineView],
        metrics: Callable[[], bytes],
    ) -> None:
        self.catalog = catalog
        self.settings = settings
        self.session_key = session_key
        self.accepting = True
        self._router = router
        self._memory = memory
        self._state = state
        self._telemetry = telemetry
        self._view = view
        self._metrics = metrics
        self._in_flight = 0
        self._quiet = anyio.Event()

    def now(self) -> float:
        """The event loop's clock, which deadlines are on."""
        return anyio.current_time()

    async def submit(self, request: Request) -> Response:
        """The whole answer. Raises EngineError. Cancelling it leaves no work behind."""
        self._enter()
        try:
            with anyio.fail_at(request.deadline):
                return await self._router.ask(Submit, request=request)
        except TimeoutError:
            raise DeadlineExceeded from None
        finally:
            self._leave()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """The text as it is written; the last delta has the whole answer. Raises EngineError.

        What is written but not read waits here, at most the tokens that were asked for.
        """
        self._enter()
        send, receive = anyio.create_memory_object_stream[Delta](math.inf)
        reply: Reply[Response] = Reply(send.close)
        try:
            with send, receive:
                self._router.post(reply, Submit(reply, request, send))
                while (delta := await _next(receive, request.deadline)) is not None:
                    yield delta
                with anyio.fail_at(request.deadline):
                    response = await reply
            yield Delta("", 0, response)
        except TimeoutError:
            raise DeadlineExceeded from None
        finally:
            reply.closed = True
            self._leave()

    def encoded(self, model: str, seconds: float) -> None:
        """The edge wrote an answer of `model` in so many seconds."""
        self._telemetry.tell(AnswerEncoded(model, seconds))

    def view(self) -> EngineView:
        """A copy of what there is to see."""
        return self._view()

    def metrics(self) -> bytes:
        """Prometheus' text format."""
        return self._metrics()

    async def load(self, model: str, who: str = "operator", reason: str = "") -> None:
        """Make it resident. Returns when it is."""
        unit = self._unit(model)
        await self._audited("load", unit, who, reason, lambda: self._memory.ask(Load, unit=unit))

    async def unload(self, model: str, who: str = "operator", reason: str = "") -> None:
        """Let it go as soon as its leases end. Returns when it is gone. A pinned one is refused."""
        unit = self._unit(model)
        await self._audited("unload", unit, who, reason, lambda: self._memory.ask(Unload, unit=unit))

    async def pin(self, model: str, who: str = "operator", reason: str = "") -> tuple[str, ...]:
        """Make it resident and keep it so, over restarts too. Returns which units no longer fit beside
        the pins. Raises NoRoom with the arithmetic when it does not fit itself."""
        unit = self._unit(model)
        return await self._audited(
            "pin", unit, who, reason, lambda: self._memory.ask(Pin, unit=unit), pinned=unit
        )

    async def unpin(self, model: str, who: str = "operator", reason: str = "") -> None:
        unit = self._unit(model)
        await self._audited(
            "unpin", unit, who, reason, lambda: self._memory.ask(Unpin, unit=unit), unpinned=unit
        )

    async def drain(self, limit: float) -> bool:
        """Take nothing new, wait for what is in flight up to `limit` seconds; whether all of it ended.

        What has not is told to come back.
        """
        self.accepting = False
        with anyio.move_on_after(limit):
            while self._in_flight:
                self._quiet = anyio.Event()
                await self._quiet.wait()
        if not self._in_flight:
            return True
        self._router.fail_unanswered(Stopped().after(1.0))
        return False

    def _unit(self, model: str) -> str:
        spec, profile = self.catalog.resolve(model)
        return spec.unit(profile)

    async def _audited(
        self,
        action: str,
        unit: str,
        who: str,
        reason: str,
        do: Callable[[], Awaitable[T]],
        pinned: str | None = None,
        unpinned: str | None = None,
    ) -> T:
        """The intent is on disk before anything happens, and how it ended after; where there is a disk."""
        if self._state is None:
            return await do()
        intent = await self._state.ask(Intend, who=who, action=action, target=unit, reason=reason)
        try:
            outcome = await do()
        except EngineError as error:
            await self._state.ask(Conclude, intent=intent, who=who, outcome=error.code)
            raise
        await self._state.ask(
            Conclude, intent=intent, who=who, outcome="ok", pinned=pinned, unpinned=unpinned
        )
        return outcome

    def _enter(self) -> None:
        if not self.accepting:
            raise Stopped().after(1.0)
        self._in_flight += 1

    def _leave(self) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self._quiet.set()


async def _next(receive: MemoryObjectReceiveStream[Delta], deadline: float) -> Delta | None:
    """The next piece, or None after the last."""
    with anyio.fail_at(deadline):
        try:
            return await receive.receive()
        except anyio.EndOfStream:
            return None
