"""The router: a request comes in, is resolved, checked and prepared, and goes on to the batcher."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import anyio
import msgspec

from engine.actors.actor import Actor, Address, Mailbox
from engine.actors.asides import Aside, Asides, weight
from engine.actors.holds import Holds
from engine.actors.messages import (
    Drain,
    Enqueue,
    Estimate,
    Foresee,
    Let,
    Pause,
    Resume,
    RouterMessage,
    Spell,
    Submit,
    Tokenize,
)
from engine.actors.workbench import Benches, Made
from engine.adapters.family import Prepared
from engine.conversation import Expected
from engine.errors import DeadlineExceeded, EngineError, Paused, QueueFull, StillLoading
from engine.events import RequestDone
from engine.going import Going, check, held_bytes
from engine.orders import EVERY_MODEL
from engine.payloads import Payloads
from engine.preparation import Preparation
from engine.requests import Task, Usage
from engine.scheduling.companions import Companions
from engine.scheduling.rules import SchedulingRules
from engine.units import Units, base

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intake:
    """The first gate: what may be held in host memory before anything is known of its cost."""

    max_held_bytes: int
    max_preparing_items: int
    max_hold: float
    workers: int
    """That prepare at once."""


class Router(Actor[RouterMessage]):
    """The only owner of what is held, bodies and prepared inputs from a request's start to its end, and of
    who is paused."""

    def __init__(
        self,
        mailbox: Mailbox[RouterMessage],
        *,
        units: Units,
        rules: SchedulingRules,
        intake: Intake,
        preparation: Preparation,
        payloads: Payloads,
        batcher: Address[Enqueue | Foresee],
        memory: Address[Expected],
        observers: Sequence[Address[RequestDone]],
    ) -> None:
        super().__init__(mailbox)
        self._units = units
        self._rules = rules
        self._intake = intake
        self._preparation = preparation
        self._payloads = payloads
        self._batcher = batcher
        self._memory = memory
        self._companions = Companions()
        self._observers = observers
        self._numbers = itertools.count(1)
        self._receipts = itertools.count(1)
        self._holds: Holds[int] = Holds(intake.max_hold)
        self._preparing: dict[int, Going] = {}
        self._drains: list[Drain] = []
        self._benches = Benches(preparation, intake.workers, self.spawn)
        self._asides = Asides(units, rules, preparation, batcher, self._going, self._benches.made)
        self.paused: set[str] = set()
        self.held_bytes = 0
        self.preparing_items = 0

    def handle(self, message: RouterMessage) -> None:
        match message:
            case Submit():
                self._receive(message)
            case Estimate() | Tokenize() | Spell():
                self._receive_aside(message)
            case Let():
                self.held_bytes -= message.held_bytes
            case Pause():
                self.paused.add(message.model)
                message.reply.resolve(None)
            case Resume():
                self.paused.discard(message.model)
                message.reply.resolve(None)
            case Drain():
                self._drains.append(message)
                self._tell_drained()
            case _:
                assert_never(message)

    def preparing(self, units: Collection[str]) -> int:
        """How many requests for these units are being prepared."""
        return sum(going.unit in units for going in self._preparing.values())

    def _tell_drained(self) -> None:
        for drain in tuple(self._drains):
            if drain.reply.closed or not self.preparing(drain.units):
                self._drains.remove(drain)
                drain.reply.resolve(None)

    def _receive(self, submit: Submit) -> None:
        request, now = submit.request, self.now
        try:
            going = self._going(submit, now)
            self._admit(going.size, len(request.items))
        except EngineError as error:
            self._refuse(submit, error, now, request.model)
            return
        self.held_bytes += going.size
        self.preparing_items += len(request.items)
        receipt = next(self._receipts)  # not the request itself: nothing may keep its bytes once it is over
        self._preparing[receipt] = going
        self._holds.add(receipt, now)
        if request.session is not None:
            self._expect(request.session, going.unit, now)
        preparer = self._preparation.ready(going.key, going.chosen)
        if preparer is None:
            self.spawn(self._prepare, receipt, going)
        else:
            self._benches.hand(going, preparer, partial(self._prepared, receipt, going))

    def _going(self, submit: Submit, now: float) -> Going:
        request, units = submit.request, self._units
        spec, profile = units.catalog.resolve(request.model)
        if request.profile:
            spec, profile = units.catalog.resolve(f"{spec.id}:{request.profile}")
        check(request, spec)
        if self.paused & {spec.id, EVERY_MODEL}:
            raise Paused
        chosen, unit = units.chosen(spec, profile), units.unit(spec, profile)
        return Going(submit, spec, chosen, profile, unit, held_bytes(request), now)

    def _expect(self, session: str, unit: str, now: float) -> None:
        """What followed this unit in other sessions is told of now, so that it loads beside this work."""
        for name in self._companions.on_request(session, base(unit), now):
            if self._units.serves(name):
                self._memory.tell(Expected(self._units.serving(name)))
            else:
                self._companions.forget(name)

    def wake_at(self) -> float:
        return self._holds.due_at()

    def wake(self) -> None:
        """Preparing may take a conversion's time: the caller is told to come back, the work goes on."""
        for receipt in self._holds.take_due(anyio.current_time()):
            if going := self._preparing.get(receipt):
                going.submit.reply.fail(StillLoading().after(1.0))

    def _admit(self, size: int, items: int) -> None:
        """The first gate. One request alone is never too large for it: the body's limit is the edge's."""
        if self.held_bytes and self.held_bytes + size > self._intake.max_held_bytes:
            text = f"{self.held_bytes} bytes of requests are held; the limit (max_held_bytes) is "
            raise QueueFull(f"{text}{self._intake.max_held_bytes}.").after(0.5)
        if self.preparing_items and self.preparing_items + items > self._intake.max_preparing_items:
            text = f"{self.preparing_items} items wait for preparation; the limit (preparation_backlog) is "
            raise QueueFull(f"{text}{self._intake.max_preparing_items}.").after(0.25)

    async def _prepare(self, receipt: int, going: Going) -> None:
        """The first for a model: its preparer may take a minute to make."""
        try:
            preparer = await self._preparation.preparer(going.key, going.chosen)
        except Exception as error:
            self._prepared(receipt, going, error)
        else:
            self._benches.hand(going, preparer, partial(self._prepared, receipt, going))

    def _prepared(self, receipt: int, going: Going, made: Made) -> None:
        """It goes on to the batcher, or its caller is told what was wrong."""
        try:
            if isinstance(made, Exception):
                raise made
            going = self._grown(going, made)
            self._enqueue(going, made)
        except EngineError as error:
            self.held_bytes -= going.size
            self._refuse(going.submit, error, going.received, going.spec.id)
        except Exception:
            self.held_bytes -= going.size
            log.exception("%s for %s could not be prepared", going.submit.request.id, going.spec.id)
            text = "The server failed to prepare this input; its log says why."
            self._refuse(going.submit, EngineError(text), going.received, going.spec.id)
        finally:
            self.preparing_items -= len(going.submit.request.items)
            del self._preparing[receipt]
            self._holds.drop(receipt)
            self._tell_drained()

    def _grown(self, going: Going, prepared: Sequence[Prepared | EngineError]) -> Going:
        """By what was prepared, where that is more than what came, as the pixels of an image are: it passes
        the first gate by its new size. Raises QueueFull."""
        more = sum([p.nbytes for p in prepared if isinstance(p, Prepared)]) - going.size
        if more <= 0:
            return going
        self.held_bytes -= going.size
        try:
            self._admit(going.size + more, 0)
        finally:
            self.held_bytes += going.size
        self.held_bytes += more
        return msgspec.structs.replace(going, size=going.size + more)

    def _enqueue(self, going: Going, prepared: Sequence[Prepared | EngineError]) -> None:
        """Items become jobs. A bad item fails encode, score and generate; on extract it fails alone."""
        submit, request, spec = going.submit, going.submit.request, going.spec
        failed = {i: p.at(i) for i, p in enumerate(prepared) if isinstance(p, EngineError)}
        if failed and request.task is not Task.EXTRACT:
            raise next(iter(failed.values()))
        number, now = f"r{next(self._numbers)}", anyio.current_time()
        jobs = going.jobs(number, prepared, self._units.facts(going.unit).targets, self._rules.targets)
        for job, ready in jobs:
            self._payloads.prepared[job.id] = ready
        usages = tuple([Usage() if isinstance(p, EngineError) else p.usage for p in prepared])
        self._batcher.tell(
            Enqueue(
                reply=submit.reply,
                request=request,
                number=number,
                model=spec.id,
                unit=going.unit,
                jobs=tuple([job for job, _ in jobs]),
                usages=usages,
                failed=failed,
                prepare_seconds=now - going.received,
                received=going.received,
                held_bytes=going.size,
                degrade=spec.degrade,
                degraded_from=submit.degraded_from,
                deltas=submit.deltas,
            )
        )

    def _receive_aside(self, aside: Aside) -> None:
        """It is prepared as a request is, behind the same gate, and then nothing of it goes on."""
        size, items = weight(aside)
        try:
            self._admit(size, items)
        except EngineError as error:
            aside.reply.fail(error)
            return
        self.held_bytes += size
        self.preparing_items += items
        self.spawn(self._answer_aside, aside, size, items)

    async def _answer_aside(self, aside: Aside, size: int, items: int) -> None:
        try:
            await self._asides.answer(aside)
        except EngineError as error:
            aside.reply.fail(error)
        except Exception:
            log.exception("a %s could not be answered", type(aside).__name__)
            aside.reply.fail(EngineError())
        finally:
            self.held_bytes -= size
            self.preparing_items -= items

    def _refuse(self, submit: Submit, error: EngineError, received: float, model: str) -> None:
        """Whoever has no time left is told that, not to come again."""
        told, now = submit.reply.error, anyio.current_time()
        if isinstance(error, QueueFull) and now >= submit.request.deadline:
            error = DeadlineExceeded()
        outcome = told.code if isinstance(told, EngineError) else error.code
        if submit.reply.closed and told is None:
            outcome = "DEADLINE_EXCEEDED" if now >= submit.request.deadline else "CANCELLED"
        submit.reply.fail(error)
        seconds = now - received
        done = RequestDone.refused(submit.request, model, outcome, received, seconds)
        for observer in self._observers:
            observer.tell(done)
