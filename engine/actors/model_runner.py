"""A model runner: one slot of one device. It runs whichever leased unit its batch names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import cast

import anyio
from structlog.contextvars import bind_contextvars

from engine.actors.actor import Actor, Address, Mailbox
from engine.adapters.family import GenerativeModel, Interruptible, Model
from engine.conversation import Finished, Idle, Outcome, Progress, Run
from engine.devices.device import Device, DeviceLost
from engine.errors import EngineError, RunnerCrashed
from engine.execution import Wanted, advance, execute
from engine.payloads import Payloads

log = logging.getLogger(__name__)


class ModelRunner(Actor[Run]):
    def __init__(
        self,
        mailbox: Mailbox[Run],
        *,
        name: str,
        slot: int,
        device: Device,
        models: Mapping[tuple[str, str], Model | GenerativeModel],
        payloads: Payloads,
        batcher: Address[Idle | Finished],
    ) -> None:
        super().__init__(mailbox)
        self._name = name
        self._slot = slot
        self._device = device
        self._models = models
        self._payloads = payloads
        self._batcher = batcher

    def start(self) -> None:
        self._batcher.tell(Idle(self._name))

    def handle(self, message: Run) -> None:
        self.spawn(self._run, message)

    async def _run(self, run: Run) -> None:
        # This task is the batch's own, so nothing needs to be taken back.
        bind_contextvars(batch=run.id, unit=run.lease.unit, device=run.lease.device)
        began = anyio.current_time()
        try:
            finished = await (self._quantum(run) if run.generative else self._batch(run))
        except DeviceLost as lost:
            log.error("%s is lost: %s", self._name, lost)
            spent = anyio.current_time() - began
            # And no Idle: this slot will never run anything again.
            self._batcher.tell(Finished(run.id, run.lease, (), spent, lost=True))
            return
        except Exception as error:
            # Only a bug comes here: whoever waits is told, then the supervisor starts a fresh runner.
            spent = anyio.current_time() - began
            failure = RunnerCrashed(f"The runner crashed: {type(error).__name__}.").after(0.5).failure()
            jobs = dict.fromkeys([*(job.id for job in run.jobs), *run.running])
            outcomes = tuple(Outcome(job, failure=failure) for job in jobs)
            self._batcher.tell(Finished(run.id, run.lease, outcomes, spent))
            raise
        self._batcher.tell(finished)
        self._batcher.tell(Idle(self._name))

    async def _batch(self, run: Run) -> Finished:
        model = cast(Model, self._models[run.lease.unit, run.lease.device])
        prepared = [self._payloads.prepared[job.payload] for job in run.jobs]
        began, cost = anyio.current_time(), sum([job.cost for job in run.jobs])
        wanted: Wanted = ()
        if isinstance(model, Interruptible):
            wanted = [partial(self._payloads.wanted, job.id) for job in run.jobs]
        work = partial(execute, model, prepared, self._device, wanted)
        executed = await self._device.run(self._slot, model, cost, work)
        outcomes = []
        for job, output in zip(run.jobs, executed.outputs, strict=True):
            if isinstance(output, EngineError):
                outcomes.append(Outcome(job.id, failure=output.failure()))
                continue
            self._payloads.outputs[job.id] = output
            outcomes.append(Outcome(job.id, output=job.id))
        spent = anyio.current_time() - began
        return Finished(
            run.id,
            run.lease,
            tuple(outcomes),
            spent,
            out_of_memory=executed.out_of_memory,
            peak_bytes=self._device.peak(self._slot),
        )

    async def _quantum(self, run: Run) -> Finished:
        model = cast(GenerativeModel, self._models[run.lease.unit, run.lease.device])
        joining = {job.id: self._payloads.prepared[job.payload] for job in run.jobs}
        began = anyio.current_time()
        cost = sum(job.cost for job in run.jobs) + len(run.running)
        work = partial(advance, model, joining, run.running, run.leaving, run.seconds, self._device)
        progressed, exhausted = await self._device.run(self._slot, model, cost, work)
        outcomes, progress = [], []
        for job, step in progressed.items():
            if step.text or step.tokens:
                progress.append(Progress(job, step.text, step.tokens, step.chosen))
            if isinstance(step.done, EngineError):
                outcomes.append(Outcome(job, failure=step.done.failure()))
            elif step.done is not None:
                self._payloads.outputs[job] = step.done
                outcomes.append(Outcome(job, output=job))
        spent = anyio.current_time() - began
        return Finished(
            run.id,
            run.lease,
            tuple(outcomes),
            spent,
            tuple(progress),
            out_of_memory=exhausted,
            peak_bytes=self._device.peak(self._slot),
        )
