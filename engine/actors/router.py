"""The router: a request comes in, is resolved, checked and prepared, and goes on to the batcher."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import anyio

from engine import bounds
from engine.actors.actor import Actor, Address, Mailbox, Reply
from engine.actors.holds import Holds
from engine.actors.messages import Enqueue, Let, RouterMessage, Submit
from engine.adapters.family import Prepared
from engine.catalog import Catalog, ModelSpec
from engine.errors import EngineError, InvalidInput, QueueFull, StillLoading
from engine.events import RequestDone
from engine.payloads import Payloads
from engine.preparation import Preparation
from engine.requests import Request, Response, Task, Usage
from engine.scheduling.lanes import Job
from engine.scheduling.rules import SchedulingRules
from engine.units import Units

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intake:
    """The first gate: what may be held in host memory before anything is known of its cost."""

    max_held_bytes: int
    max_preparing_items: int
    max_hold: float


class Router(Actor[RouterMessage]):
    """The only owner of what is held: bodies and prepared inputs, from a request's start to its end."""

    def __init__(
        self,
        mailbox: Mailbox[RouterMessage],
        *,
        catalog: Catalog,
        units: Units,
        rules: SchedulingRules,
        intake: Intake,
        preparation: Preparation,
        payloads: Payloads,
        batcher: Address[Enqueue],
        observers: Sequence[Address[RequestDone]],
    ) -> None:
        super().__init__(mailbox)
        self._catalog = catalog
        self._units = units
        self._rules = rules
        self._intake = intake
        self._preparation = preparation
        self._payloads = payloads
        self._batcher = batcher
        self._observers = observers
        self._numbers = itertools.count(1)
        self._receipts = itertools.count(1)
        self._holds: Holds[int] = Holds(intake.max_hold)
        self._preparing: dict[int, Reply[Response]] = {}
        self.held_bytes = 0
        self.preparing_items = 0

    def handle(self, message: RouterMessage) -> None:
        match message:
            case Submit():
                self._receive(message)
            case Let():
                self.held_bytes -= message.held_bytes
            case _:
                assert_never(message)

    def _receive(self, submit: Submit) -> None:
        request, now = submit.request, anyio.current_time()
        try:
            spec, profile = self._catalog.resolve(request.model)
            profile = request.profile or profile
            if profile == "default":
                profile = None
            if profile and profile not in spec.profiles:
                known = ", ".join(sorted(spec.profiles)) or "none"
                raise InvalidInput(f"{spec.id} has no profile {profile!r}; it has: {known}")
            check(request, spec)
            size = held_bytes(request)
            self._admit(size, len(request.items))
        except EngineError as error:
            self._refuse(submit, error, now, request.model)
            return
        self.held_bytes += size
        self.preparing_items += len(request.items)
        receipt = next(self._receipts)  # not the request itself: nothing may keep its bytes once it is over
        self._preparing[receipt] = submit.reply
        self._holds.add(receipt, now)
        self.spawn(self._prepare, receipt, submit, spec, profile, size, now)

    def wake_at(self) -> float:
        return self._holds.due_at()

    def wake(self) -> None:
        """Preparing may take a conversion's time: the caller is told to come back, the work goes on."""
        for receipt in self._holds.take_due(anyio.current_time()):
            if reply := self._preparing.get(receipt):
                reply.fail(StillLoading().after(1.0))

    def _admit(self, size: int, items: int) -> None:
        """The first gate. One request alone is never too large for it: the body's limit is the edge's."""
        if self.held_bytes and self.held_bytes + size > self._intake.max_held_bytes:
            text = f"{self.held_bytes} bytes of requests are held; the limit (max_held_bytes) is "
            raise QueueFull(f"{text}{self._intake.max_held_bytes}.").after(0.5)
        if self.preparing_items and self.preparing_items + items > self._intake.max_preparing_items:
            text = f"{self.preparing_items} items wait for preparation; the limit (preparation_backlog) is "
            raise QueueFull(f"{text}{self._intake.max_preparing_items}.").after(0.25)

    async def _prepare(
        self,
        receipt: int,
        submit: Submit,
        spec: ModelSpec,
        profile: str | None,
        size: int,
        received: float,
    ) -> None:
        request = submit.request
        key = f"{spec.id}:{profile}" if profile else spec.id
        try:
            prepared = await self._bounded(key, spec.profiled(profile), request)
            self._enqueue(submit, spec, profile, prepared, size, received)
        except EngineError as error:
            self.held_bytes -= size
            self._refuse(submit, error, received, spec.id)
        except Exception:
            self.held_bytes -= size
            log.exception("a request for %s could not be prepared", spec.id)
            text = "The server failed to prepare this input; its log says why."
            self._refuse(submit, EngineError(text), received, spec.id)
        finally:
            self.preparing_items -= len(request.items)
            del self._preparing[receipt]

    async def _bounded(self, key: str, spec: ModelSpec, request: Request) -> list[Prepared | EngineError]:
        """Every item prepared, or what is wrong with it; those that the entry does not take are not tried."""
        wrong = {
            index: error
            for index, item in enumerate(request.items)
            if (error := bounds.mismatch(item, spec, request.task) or bounds.too_large(item, spec))
        }
        items = [item for i, item in enumerate(request.items) if i not in wrong]
        if wrong and request.task is not Task.EXTRACT:
            first = min(wrong)
            raise wrong[first].at(first)
        prepared = await self._preparation.prepare(key, spec, request.task, items, request.options)
        return bounds.woven(request.items, wrong, [bounds.too_costly(p, spec) for p in prepared])

    def _enqueue(
        self,
        submit: Submit,
        spec: ModelSpec,
        profile: str | None,
        prepared: Sequence[Prepared | EngineError],
        size: int,
        received: float,
    ) -> None:
        """Items become jobs. A bad item fails encode, score and generate; on extract it fails alone."""
        request = submit.request
        failed = {i: p.at(i) for i, p in enumerate(prepared) if isinstance(p, EngineError)}
        if failed and request.task is not Task.EXTRACT:
            raise next(iter(failed.values()))
        number, unit, now = f"r{next(self._numbers)}", spec.unit(profile), anyio.current_time()
        service_class = spec.default_class if request.service_class is None else request.service_class
        target = self._units.facts(unit).targets.get(service_class, self._rules.targets[service_class])
        limits = spec.profiled(profile).limits
        jobs = []
        for index, ready in enumerate(prepared):
            if isinstance(ready, EngineError):
                continue
            job = Job(
                id=f"{number}/{index}",
                request=number,
                unit=unit,
                cost=max(1, ready.cost),
                service_class=service_class,
                arrived=received,
                due=min(request.deadline, received + target),
                deadline=request.deadline,
                kv_tokens=ready.kv_tokens,
                max_batch_cost=limits.max_batch_cost or 1 << 62,
                max_batch_jobs=limits.max_batch_jobs or 1 << 62,
            )
            jobs.append(job)
            self._payloads.prepared[job.id] = ready
        usages = tuple(Usage() if isinstance(p, EngineError) else p.usage for p in prepared)
        self._batcher.tell(
            Enqueue(
                reply=submit.reply,
                request=request,
                number=number,
                model=spec.id,
                unit=unit,
                jobs=tuple(jobs),
                usages=usages,
                failed=failed,
                prepare_seconds=now - received,
                received=received,
                held_bytes=size,
                degrade=spec.degrade,
                degraded_from=submit.degraded_from,
                deltas=submit.deltas,
            )
        )

    def _refuse(self, submit: Submit, error: EngineError, received: float, model: str) -> None:
        told, now = submit.reply.error, anyio.current_time()
        outcome = told.code if isinstance(told, EngineError) else error.code
        if submit.reply.closed and told is None:
            outcome = "DEADLINE_EXCEEDED" if now >= submit.request.deadline else "CANCELLED"
        submit.reply.fail(error)
        seconds = now - received
        done = RequestDone.refused(submit.request, model, outcome, received, seconds)
        for observer in self._observers:
            observer.tell(done)


def check(request: Request, spec: ModelSpec) -> None:
    """Whether the model can do this at all. Raises InvalidInput naming what it can do."""
    if request.task not in spec.tasks:
        raise InvalidInput(f"{spec.id} cannot {request.task}; it can: {', '.join(spec.tasks)}.")
    if not request.items:
        raise InvalidInput("items is empty; send at least one.")


def held_bytes(request: Request) -> int:
    """Bytes of what the client sent, text at four a character as Python may hold it."""
    total = 0
    for item in request.items:
        media = [*item.images, *(m for m in (item.audio, item.video, item.document) if m)]
        total += sum(len(m.data) for m in media) + 4 * len(item.text or "") + 200
    return total
