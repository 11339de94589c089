"""The engine as the edge sees it: ask for something, look at a copy, or have an operator's will done."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from engine.access.access import Access
from engine.actors.actor import Address, Mailbox, Reply
from engine.actors.messages import Estimate, RouterMessage, Spell, Submit, Tokenize
from engine.adopting.opened import Opened
from engine.batches.batches import Batches
from engine.catalog import Catalog
from engine.closely import Closely
from engine.config import Settings
from engine.errors import DeadlineExceeded, QueueFull, StillLoading, Stopped
from engine.estimates import Estimated, Tokens
from engine.events import AnswerEncoded
from engine.operators import Operators
from engine.orders import Action, Order
from engine.recordings import Recordings
from engine.requests import Delta, Request, Response
from engine.sizes import Sizes
from engine.units import Units, base
from engine.view import EngineView


class Engine:
    """Its actors run in the task group that opened it; see `engine/running.py`."""

    def __init__(
        self,
        *,
        units: Units,
        settings: Settings,
        session_key: bytes,
        router: Mailbox[RouterMessage],
        operators: Operators,
        telemetry: Address[AnswerEncoded],
        view: Callable[[], EngineView],
        metrics: Callable[[bool], bytes],
        access: Access,
        closely: Closely,
        sizes: Sizes,
        recordings: Recordings,
        batches: Batches,
        opened: Opened,
    ) -> None:
        self.batches = batches
        self._opened = opened
        self.closely = closely
        self.sizes = sizes
        self.recordings = recordings
        self.operators = operators
        self.settings = settings
        self.access = access
        self.session_key = session_key
        self.accepting = True
        self._units = units
        self._router = router
        self._telemetry = telemetry
        self._view = view
        self._metrics = metrics
        self._in_flight = 0
        self._quiet = anyio.Event()

    @property
    def catalog(self) -> Catalog:
        """What is served now; it may be another one the next time."""
        return self._units.catalog

    def now(self) -> float:
        """The event loop's clock, which deadlines are on."""
        return anyio.current_time()

    async def need(self, model: str) -> None:
        """Where the catalogue is open, an entry for a repository that it does not know. Raises UnknownModel
        with why there is none, InvalidInput; nothing where it is closed."""
        with self._aside():
            await self._opened.need(model)

    async def submit(self, request: Request) -> Response:
        """The whole answer. Raises EngineError. Cancelling it leaves no work behind."""
        self._enter()
        self.recordings.seen(request)
        try:
            with _in_time(request):
                await self._opened.need(request.model)
                return await self._router.ask(Submit, request=request)
        finally:
            self._leave()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """The text as it is written; the last delta has the whole answer. Raises EngineError.

        What is written but not read waits here, at most the tokens that were asked for.
        """
        self._enter()
        self.recordings.seen(request)
        send, receive = anyio.create_memory_object_stream[Delta](math.inf)
        reply: Reply[Response] = Reply(send.close)
        try:
            with send, receive:
                with _in_time(request):
                    await self._opened.need(request.model)
                self._router.post(reply, Submit(reply, request, send))
                while (delta := await _next(receive, request)) is not None:
                    yield delta
                with _in_time(request):
                    response = await reply
            yield Delta("", 0, response)
        finally:
            reply.leave()
            self._leave()

    async def estimate(self, request: Request) -> Estimated:
        """What it would cost and how it would fare now. Nothing of it is run. Raises EngineError."""
        with self._aside():
            await self._opened.need(request.model)
            found = await self._router.ask(Estimate, request=request)
            if found.outlook.refusal is not None:
                return found
            for unit in found.absent:  # it was prepared, so the files are here
                if refusal := await self.sizes.refusal(base(unit)):
                    return replace(found, outlook=replace(found.outlook, refusal=refusal))
            return found

    async def tokenize(self, model: str, texts: tuple[str, ...], special: bool) -> list[Tokens]:
        """Each text as the model's tokenizer cuts it. No weights are loaded. Raises EngineError."""
        with self._aside():
            await self._opened.need(model)
            return await self._router.ask(Tokenize, model=model, texts=texts, special=special)

    async def spell(self, model: str, ids: tuple[tuple[int, ...], ...], special: bool) -> list[str]:
        """The texts that ids of the model's tokenizer stand for. Raises EngineError."""
        with self._aside():
            await self._opened.need(model)
            return await self._router.ask(Spell, model=model, ids=ids, special=special)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """As a request, though a tokenizer that is still fetched is waited for only as long as a model."""
        self._enter()
        try:
            with anyio.fail_after(self.settings.max_hold):
                yield
        except TimeoutError:
            raise StillLoading().after(1.0) from None
        finally:
            self._leave()

    def encoded(self, model: str, seconds: float) -> None:
        """The edge wrote an answer of `model` in so many seconds."""
        self._telemetry.tell(AnswerEncoded(model, seconds))

    def view(self) -> EngineView:
        """A copy of what there is to see."""
        seen, operators = self._view(), self.operators
        return replace(
            seen,
            accepting=self.accepting,
            catalog=operators.catalog(),
            acted=operators.audit.acted,
            recorder=self.recordings.view,
        )

    def metrics(self) -> bytes:
        """Prometheus' text format."""
        return self._metrics(self.accepting) + self.access.exposition()

    async def load(self, model: str, who: str = "operator", reason: str = "") -> None:
        """Make it resident. Returns when it is."""
        await self.operators.operate(Order(Action.LOAD, model, who, reason))

    async def unload(self, model: str, who: str = "operator", reason: str = "") -> None:
        """Let it go as soon as its leases end. Returns when it is gone. A pinned one is refused."""
        await self.operators.operate(Order(Action.UNLOAD, model, who, reason))

    async def pin(self, model: str, who: str = "operator", reason: str = "") -> tuple[str, ...]:
        """Make it resident and keep it so, over restarts too. Returns which units no longer fit beside
        the pins. Raises NoRoom with the arithmetic when it does not fit itself."""
        done = await self.operators.operate(Order(Action.PIN, model, who, reason))
        return done.no_longer_fits

    async def unpin(self, model: str, who: str = "operator", reason: str = "") -> None:
        await self.operators.operate(Order(Action.UNPIN, model, who, reason))

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

    def _enter(self) -> None:
        if not self.accepting:
            raise Stopped().after(1.0)
        self._in_flight += 1

    def _leave(self) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self._quiet.set()


async def _next(receive: MemoryObjectReceiveStream[Delta], request: Request) -> Delta | None:
    """The next piece, or None after the last."""
    with _in_time(request):
        try:
            return await receive.receive()
        except anyio.EndOfStream:
            return None


def _in_time(request: Request) -> AbstractContextManager[None]:
    """Until its deadline, where it has one: a scope costs more than most of what is done in it."""
    return nullcontext() if request.deadline == math.inf else _until(request.deadline)


@contextmanager
def _until(deadline: float) -> Iterator[None]:
    """A refusal that comes after the deadline is of no use: the time was what was missing."""
    try:
        with anyio.fail_at(deadline):
            yield
    except TimeoutError:
        raise DeadlineExceeded from None
    except (QueueFull, StillLoading):
        if anyio.current_time() >= deadline:
            raise DeadlineExceeded from None
        raise
