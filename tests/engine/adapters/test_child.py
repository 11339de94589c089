from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.adapters.documents.child import Bounds, Child
from engine.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InputTooLong,
    InvalidInput,
    LoadFailed,
    Stopped,
)

UNRULY = "tests.engine.adapters.unruly_worker"
ROOT = Path(__file__).parents[3]
BOUNDS = Bounds(memory_bytes=256 << 20, resident_bytes=192 << 20, answer_bytes=1 << 20)


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child(UNRULY, BOUNDS)
    yield made
    made.close()


def alive(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def test_what_libraries_print_does_not_reach_the_protocol(child: Child) -> None:
    assert child.call({"say": {"text": "ü", "bytes": b"\x00\xff"}}, 10) == {
        "said": {"text": "ü", "bytes": b"\x00\xff"}
    }
    assert child.call({"say": 2}, 10) == {"said": 2}


def test_frames_larger_than_a_pipe_go_both_ways(child: Child) -> None:
    assert child.call({"say": b"x" * 900_000}, 10) == {"said": b"x" * 900_000}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_child_that_dies_fails_its_call_alone(child: Child, number: signal.Signals) -> None:
    child.call({"say": 1}, 10)
    first = child.pid

    with pytest.raises(InferenceFailed, match=number.name):
        child.call({"die": int(number)}, 10)

    assert child.call({"say": 2}, 10) == {"said": 2}
    assert child.pid != first
    assert first is not None
    assert not alive(first)


def test_a_child_killed_from_outside_in_the_middle_of_a_job_fails_that_job(child: Child) -> None:
    child.start()
    pid = child.pid
    assert pid is not None
    killer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
    killer.start()

    with pytest.raises(InferenceFailed, match="SIGKILL"):
        child.call({"sleep": 30}, 20)

    killer.join()
    assert child.call({"say": 2}, 10) == {"said": 2}


def test_a_job_that_needs_too_much_memory_is_told_the_limit_and_the_next_has_a_new_child(
    child: Child,
) -> None:
    child.start()
    first = child.pid

    with pytest.raises(InputTooLong, match="256 MiB"):
        child.call({"take": 1 << 30}, 10)

    assert child.call({"take": 1000}, 10) == {"said": 1000}
    assert child.pid != first


def test_memory_that_native_code_cannot_get_is_told_as_such(child: Child) -> None:
    with pytest.raises(InputTooLong, match="256 MiB"):
        child.call({"abort": "terminate called after throwing an instance of 'std::bad_alloc'"}, 10)
    with pytest.raises(InputTooLong, match="256 MiB"):
        child.call({"fail": "OpenCV: (-4:Insufficient memory)"}, 10)


def test_last_words_are_part_of_the_error(child: Child) -> None:
    with pytest.raises(InferenceFailed, match=r"SIGABRT.*the assertion does not hold"):
        child.call({"abort": "many words before\nthe assertion does not hold\n"}, 10)


@pytest.mark.parametrize("way", ["sleep", "spin"])
def test_a_job_that_takes_too_long_is_ended(child: Child, way: str) -> None:
    child.start()
    pid = child.pid
    assert pid is not None
    began = time.monotonic()

    with pytest.raises(InputTooLong, match=r"longer than 0\.3 s \(max_seconds\)") as told:
        child.call({way: 30}, 0.3)

    assert told.value.details == {"max_seconds": 0.3}
    assert time.monotonic() - began < 5
    assert not alive(pid)
    assert child.call({"say": 2}, 10) == {"said": 2}


def test_a_job_that_nobody_waits_for_any_more_is_ended_in_its_middle(child: Child) -> None:
    child.start()
    pid = child.pid
    assert pid is not None
    asked, began = iter([True, True, False]), time.monotonic()

    with pytest.raises(DeadlineExceeded):
        child.call({"sleep": 30}, 30, lambda: next(asked, False))

    assert time.monotonic() - began < 5
    assert not alive(pid)
    assert child.call({"say": 2}, 10) == {"said": 2}


def test_whoever_is_not_wanted_does_not_wait_for_its_turn(child: Child) -> None:
    child.start()
    busy = threading.Thread(target=child.call, args=({"sleep": 0.8}, 10))
    busy.start()
    until(lambda: child._lock.locked())
    asked, began = iter([True, False]), time.monotonic()

    with pytest.raises(DeadlineExceeded):
        child.call({"say": 1}, 10, lambda: next(asked, False))

    assert time.monotonic() - began < 0.6
    pid = child.pid
    busy.join()
    assert child.pid == pid


def test_an_answer_that_is_too_long_is_not_read(child: Child) -> None:
    with pytest.raises(InputTooLong, match="the limit is 1048576"):
        child.call({"answer": 2 << 20}, 10)
    assert child.call({"say": 2}, 10) == {"said": 2}


def test_an_answer_that_is_no_answer_fails_its_call_alone(child: Child) -> None:
    with pytest.raises(InferenceFailed, match="cannot be read"):
        child.call({"babble": "what is this"}, 10)
    assert child.call({"say": 2}, 10) == {"said": 2}


def test_an_interrupted_call_does_not_leave_its_answer_to_the_next(child: Child) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    child.start()
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            child.call({"sleep": 0.3}, 10)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert child.call({"say": "mine"}, 10) == {"said": "mine"}


def test_errors_come_back_as_what_they_were_and_keep_the_child(child: Child) -> None:
    with pytest.raises(InvalidInput, match="no page") as told:
        child.call({"complain": "no page"}, 10)
    assert told.value.details == {"page": 3}
    first = child.pid

    with pytest.raises(InferenceFailed, match="RuntimeError: odd"):
        child.call({"fail": "odd"}, 10)

    assert child.pid == first


def test_a_worker_reaches_no_network_starts_no_program_and_writes_no_file(
    child: Child, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(InferenceFailed, match="may not do this"):
            child.call({"connect": server.getsockname()[1]}, 10)
    with pytest.raises(InferenceFailed, match="may not do this"):
        child.call({"run": "/bin/true"}, 10)
    with pytest.raises(InferenceFailed, match="File too large"):
        child.call({"write": str(tmp_path / "left")}, 10)


def test_a_worker_sees_no_secrets_and_uses_one_thread(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")

    said = child.call({"look": "HF_TOKEN"}, 10)["said"]

    assert said == {"pid": child.pid, "threads": "1", "value": None}


def test_a_new_child_prepares_before_it_is_asked(tmp_path: Path) -> None:
    child = Child(UNRULY, Bounds(256 << 20, 192 << 20, jobs=1), {"marks": str(tmp_path)})

    child.call({"say": 1}, 10)

    until(lambda: len(list(tmp_path.iterdir())) == 2)
    child.close()


def test_a_child_is_replaced_after_its_number_of_jobs() -> None:
    child = Child(UNRULY, Bounds(256 << 20, 192 << 20, jobs=2))

    pids = [child.call({"look": "X"}, 10)["said"]["pid"] for _ in range(4)]
    child.close()

    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_child_that_has_grown_is_replaced_after_its_answer() -> None:
    child = Child(UNRULY, Bounds(512 << 20, 100 << 20))

    first = child.call({"look": "X"}, 10)["said"]["pid"]
    assert child.call({"take": 150 << 20}, 10) == {"said": 150 << 20}
    second = child.call({"look": "X"}, 10)["said"]["pid"]
    child.close()

    assert first != second
    assert not alive(first)


def test_a_preparation_that_fails_is_a_load_that_failed() -> None:
    child = Child(UNRULY, BOUNDS, {"broken": "no weights there"})

    with pytest.raises(LoadFailed, match="no weights there"):
        child.start()

    assert child.pid is None


def test_a_worker_that_cannot_be_imported_is_a_load_that_failed() -> None:
    with pytest.raises(LoadFailed, match="No module named"):
        Child("engine.adapters.no_such_worker", BOUNDS).start()


def test_closing_ends_a_running_job_and_leaves_no_process(child: Child) -> None:
    child.start()
    pid = child.pid
    assert pid is not None
    closer = threading.Timer(0.1, child.close)
    closer.start()

    with pytest.raises(Stopped):
        child.call({"sleep": 30}, 20)

    closer.join()
    assert not alive(pid)
    with pytest.raises(Stopped):
        child.call({"say": 1}, 10)


def test_a_child_that_nobody_holds_any_more_is_ended() -> None:
    child = Child(UNRULY, BOUNDS)
    child.start()
    pid = child.pid
    assert pid is not None

    del child
    gc.collect()

    assert not alive(pid)


def test_a_child_outlives_the_thread_that_started_it(child: Child) -> None:
    starter = threading.Thread(target=child.start)
    starter.start()
    starter.join()
    pid = child.pid

    assert child.call({"look": "X"}, 10)["said"]["pid"] == pid


@pytest.mark.parametrize("job", ['{"say": 1}', '{"spin": 60}'])
def test_a_child_ends_with_its_parent_idle_or_busy(job: str) -> None:
    program = (
        "import sys, threading, time\n"
        "from engine.adapters.documents.child import Bounds, Child\n"
        f"child = Child({UNRULY!r}, Bounds(256 << 20, 192 << 20))\n"
        "child.start()\n"
        f"threading.Thread(target=child.call, args=({job}, 60), daemon=True).start()\n"
        "time.sleep(0.1)\n"
        "sys.stdout.write(f'{child.pid}\\n')\n"
        "sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)

        parent.kill()
        parent.wait()

        until(lambda: not alive(pid))


def test_whatever_aborts_without_a_word_was_refused_memory(child: Child) -> None:
    with pytest.raises(InputTooLong, match="256 MiB") as told:
        child.call({"abort": ""}, 10)

    assert told.value.details == {"max_memory": 256 << 20}
