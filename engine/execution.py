"""One batch on one model, so that a job that is wrong fails alone. Runs on a slot's thread.

An error that means the end of the device is no job's: it comes out as DeviceLost.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.adapters.family import (
    Fixed,
    GenerativeModel,
    Interruptible,
    Model,
    Parkable,
    Prepared,
    Progressed,
)
from engine.devices.device import Device, DeviceLost
from engine.devices.failures import out_of_memory
from engine.errors import EngineError, InferenceFailed, NotFinite, ResourceExhausted
from engine.requests import Encoded, Output, Scored

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Executed:
    outputs: list[Output | EngineError]
    out_of_memory: bool = False


Wanted = Sequence[Callable[[], bool]]
"""Of each job, whether anybody waits for it still."""


def execute(model: Model, jobs: Sequence[Prepared], device: Device, wanted: Wanted = ()) -> Executed:
    """One output or error per job, in order. A batch that raises is halved until the culprit is alone.

    A result that is not finite is made once more in float32, where the weights have less. Raises
    DeviceLost.
    """
    executed = _halving(model, jobs, device, wanted)
    outputs = executed.outputs
    if any(isinstance(output, NotFinite) for output in outputs) and _holds_halves(model):
        pairs = zip(outputs, jobs, strict=True)
        outputs = [_wider(model, job, device, o) if isinstance(o, NotFinite) else o for o, job in pairs]
    return Executed(outputs, executed.out_of_memory)


def _halving(model: Model, jobs: Sequence[Prepared], device: Device, wanted: Wanted) -> Executed:
    try:
        outputs = list(_run(model, jobs, wanted))
        if len(outputs) != len(jobs):
            raise InferenceFailed(f"The model gave {len(outputs)} results for {len(jobs)} inputs.")
        return Executed([_finite(output) for output in outputs])
    except Exception as error:
        exhausted = _judged(error, device)
        if len(jobs) == 1:
            return Executed([_explained(error, exhausted)], exhausted)
        log.warning("a batch of %d failed and is halved: %s", len(jobs), type(error).__name__)
    # Not in the handler: the error's frames hold the failed batch's tensors.
    middle = len(jobs) // 2
    first = _halving(model, jobs[:middle], device, wanted[:middle])
    second = _halving(model, jobs[middle:], device, wanted[middle:])
    exhausted = exhausted or first.out_of_memory or second.out_of_memory
    return Executed(first.outputs + second.outputs, exhausted)


def _run(model: Model, jobs: Sequence[Prepared], wanted: Wanted) -> Sequence[Output | EngineError]:
    if wanted and isinstance(model, Interruptible):
        return model.run_while(jobs, wanted)
    return model.run(jobs)


def advance(
    model: GenerativeModel,
    joining: Mapping[str, Prepared],
    running: Sequence[str],
    leaving: Sequence[str],
    seconds: float,
    device: Device,
) -> tuple[Mapping[str, Progressed], bool]:
    """One quantum, and whether memory ran out. When the model itself breaks, all its sequences fail.

    Raises DeviceLost.
    """
    try:
        return model.advance(joining, leaving, seconds), False
    except Exception as error:
        exhausted = _judged(error, device)
        log.exception("a quantum failed")
        failed = _explained(error, exhausted)
        everyone = [*joining, *(job for job in running if job not in joining)]
        try:
            model.advance({}, everyone, 0.0)  # forget them, so that they hold no memory
        except Exception:
            log.exception("the sequences of a failed quantum could not be forgotten")
        return {job: Progressed("", 0, failed) for job in everyone}, exhausted


def _judged(error: Exception, device: Device) -> bool:
    """Whether memory ran out; if so, what the allocator kept for later is free again.

    Raises DeviceLost when the device did not survive.
    """
    if device.lost_by(error):
        raise DeviceLost(f"{device.name}: {error}") from error
    exhausted = out_of_memory(error)
    if exhausted:
        # The frames that raised hold what they had allocated.
        traceback.clear_frames(error.__traceback__)
        device.release_caches()
    return exhausted


def _explained(error: Exception, exhausted: bool) -> EngineError:
    if isinstance(error, EngineError):
        return error
    if exhausted:
        text = "Memory ran out on this input alone. Send a shorter one, or try again later."
        return ResourceExhausted(text).after(5.0)
    log.error("an input failed in the model", exc_info=error)
    return InferenceFailed(f"The model failed on this input: {type(error).__name__}.")


def _finite(output: Output | EngineError) -> Output | EngineError:
    """Numbers are never NaN: a result that is not finite is an error instead."""
    match output:
        case Scored(score=score):
            good = math.isfinite(score)
        case Encoded(dense=dense, sparse=sparse, multivector=multivector):
            values = (dense, sparse and sparse.values, multivector)
            good = all(_all_finite(v) for v in values if v is not None)
        case _:
            return output
    return output if good else NotFinite()


def _holds_halves(model: Model) -> bool:
    if isinstance(model, Fixed):
        return model.in_halves
    if not isinstance(model, Parkable):
        return False
    from engine.adapters.forward import exact  # imports torch, which such a model has

    return exact.holds_halves(model.tensors())


def _wider(model: Model, job: Prepared, device: Device, failed: NotFinite) -> Output | EngineError:
    """The job once more, alone, in float32; or `failed` where that does no better. Raises DeviceLost."""
    from engine.adapters.forward import exact

    try:
        with exact.InFloat32():  # type: ignore[no-untyped-call]
            (output,) = model.run([job])
    except Exception as error:
        _judged(error, device)
        log.warning("an input failed in float32 too: %s", type(error).__name__)
        return failed
    return _finite(output)


def _all_finite(values: Any) -> bool:
    return not np.issubdtype(values.dtype, np.floating) or bool(np.isfinite(values).all())
