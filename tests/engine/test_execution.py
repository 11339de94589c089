"""A batch that raises is halved; what the error says of memory and of the device is told apart."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import pytest

from engine import execution
from engine.adapters.family import Prepared
from engine.adapters.simulated import Declared, SimulatedModel
from engine.devices.device import DeviceLost
from engine.devices.simulated import Simulated
from engine.errors import EngineError, InferenceFailed, ResourceExhausted
from engine.execution import Executed
from engine.requests import Encoded, Output, Task
from tests.simulation import device


def jobs(*costs: int) -> list[Prepared]:
    return [Prepared(cost, (Task.ENCODE, f"text {n}", 0), 9) for n, cost in enumerate(costs)]


def kinds(executed: Executed) -> list[type]:
    return [type(output) for output in executed.outputs]


def execute(batch: Sequence[Prepared], on: Simulated | None = None, **declared: object) -> Executed:
    model = SimulatedModel(Declared(**declared), 8)  # type: ignore[arg-type]
    return execution.execute(model, batch, on or device())


class Model:
    """Does what it is told with each batch."""

    def __init__(self, run: Callable[[Sequence[Prepared]], Sequence[Output | EngineError]]) -> None:
        self.run = run

    def unload(self) -> None: ...


class Caching(Simulated):
    """Counts how often its caches were released."""

    released = 0

    def release_caches(self) -> None:
        self.released += 1


def caching() -> Caching:
    return Caching("simulated:a", slots=1, memory=1)


def test_the_job_that_does_not_fit_fails_alone():
    executed = execute(jobs(1, 2, 9, 1), out_of_memory_above=4)

    assert kinds(executed) == [Encoded, Encoded, ResourceExhausted, Encoded]
    assert executed.out_of_memory


def test_a_batch_that_fits_in_halves_fails_nobody_and_says_that_memory_ran_out():
    executed = execute(jobs(3, 3), out_of_memory_above=4)

    assert kinds(executed) == [Encoded, Encoded] and executed.out_of_memory


def test_caches_are_released_before_each_smaller_try():
    card = caching()
    execute(jobs(3, 3), card, out_of_memory_above=4)
    assert card.released == 1

    execute(jobs(1, 1), card, poison="text 1")
    assert card.released == 1


def test_a_poisoned_input_is_no_lack_of_memory():
    executed = execute(jobs(1, 1), poison="text 1")

    assert kinds(executed) == [Encoded, InferenceFailed] and not executed.out_of_memory


def test_what_the_failed_batch_held_is_free_before_a_smaller_one_is_tried():
    class Tensor:
        pass

    held: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def run(batch: Sequence[Prepared]) -> list[Output | EngineError]:
        alive.append(sum(tensor() is not None for tensor in held))
        mine = Tensor()
        held.append(weakref.ref(mine))
        if len(batch) > 1:
            raise MemoryError
        return [Encoded()]

    execution.execute(Model(run), jobs(1, 1, 1, 1), caching())

    assert alive == [0] * 7


def test_a_lost_device_is_no_jobs_fault():
    def run(batch: Sequence[Prepared]) -> list[Output | EngineError]:
        raise DeviceLost("gone")

    with pytest.raises(DeviceLost):
        execution.execute(Model(run), jobs(1, 1), device())


def test_a_device_that_is_lost_on_the_second_half_is_lost():
    tried = []

    def run(batch: Sequence[Prepared]) -> list[Output | EngineError]:
        tried.append(len(batch))
        if len(tried) == 3:
            raise DeviceLost("gone")
        if len(batch) > 1:
            raise ValueError("halve it")
        return [Encoded()]

    with pytest.raises(DeviceLost):
        execution.execute(Model(run), jobs(1, 1), device())
    assert tried == [2, 1, 1]


def test_a_quantum_without_memory_fails_its_sequences_and_says_so():
    model = SimulatedModel(Declared(out_of_memory_above=4), 8)
    fits, large = (Prepared(cost, (Task.GENERATE, "hello you", 3), 9) for cost in (1, 9))
    execution.advance(model, {"a": fits}, (), (), 1.0, device())

    progressed, exhausted = execution.advance(model, {"b": large}, ("a",), (), 1.0, device())

    assert exhausted
    assert {job: type(step.done) for job, step in progressed.items()} == {
        "a": ResourceExhausted,
        "b": ResourceExhausted,
    }
    assert execution.advance(model, {}, (), (), 1.0, device()) == ({}, False), "they are forgotten"
