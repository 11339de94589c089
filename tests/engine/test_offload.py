from __future__ import annotations

import os
import sys
import threading

import anyio
import pytest

from engine.offload import NICENESS, Threads

pytestmark = pytest.mark.anyio


class Panic(BaseException):
    """What a library in Rust raises when it gives up."""


@pytest.fixture
def anyio_backend():
    return "asyncio"  # threads live in real time


async def test_a_panic_beside_the_loop_is_an_error_like_another():
    def give_up() -> None:
        raise Panic("stack overflow")

    with pytest.raises(RuntimeError, match="Panic: stack overflow"):
        await Threads(1)(give_up)


async def test_what_no_future_can_carry_is_an_error_like_another():
    with pytest.raises(RuntimeError, match="StopIteration"):
        await Threads(1)(lambda: next(iter(())))


async def test_a_caller_who_leaves_waits_for_the_thread_that_works_for_it():
    began, may_end, order = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        began.set()
        may_end.wait(10)
        order.append("worked")

    async def ask() -> None:
        try:
            await Threads(1)(work)
        finally:
            order.append("left")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.to_thread.run_sync(began.wait, 10)
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
            assert order == []
            may_end.set()
    assert order == ["worked", "left"]


@pytest.mark.skipif(sys.platform != "linux", reason="niceness of a thread is Linux's")
async def test_work_beside_the_loop_leaves_the_processor_to_it():
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert await Threads(1)(niceness) > niceness()


@pytest.mark.skipif(sys.platform != "linux", reason="niceness of a thread is Linux's")
def test_a_server_that_is_nicer_than_that_stays_so():
    found: list[int] = []

    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def serve() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS + 5)
        found.append(anyio.run(Threads(1), niceness))

    server = threading.Thread(target=serve)
    server.start()
    server.join()
    assert found == [NICENESS + 5]


async def test_what_waits_for_a_thread_is_not_done_when_its_caller_has_left():
    began, may_end, done = threading.Event(), threading.Event(), list[str]()
    threads = Threads(1)

    def work() -> None:
        began.set()
        may_end.wait(10)
        done.append("first")

    async with anyio.create_task_group() as first:
        first.start_soon(threads, work)
        await anyio.to_thread.run_sync(began.wait, 10)
        async with anyio.create_task_group() as second:
            second.start_soon(threads, lambda: done.append("second"))
            await anyio.wait_all_tasks_blocked()
            second.cancel_scope.cancel()
        may_end.set()
    await threads(lambda: done.append("third"))
    assert done == ["first", "third"]
