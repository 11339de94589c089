"""Requests go out at their own moments, whatever became of those before them."""

from __future__ import annotations

import math
from pathlib import Path

import anyio
import numpy as np
import pytest

from replay.formats.reading import read
from replay.replaying.log import WAITING, Log
from replay.replaying.run import maker_for, run
from replay.replaying.sending import replay
from replay.replaying.target import Outcome
from replay.replaying.wanted import Wanted, chosen
from replay.replaying.within import Within
from replay.report import report, verdict
from replay.report.report import About
from replay.scaling import Method
from replay.trace import BadTrace, Trace, merged
from replay.virtualtime import VirtualTimeLoop
from tests.simulation import catalog, engine, model

DATA = Path(__file__).parents[2] / "data"
pytestmark = pytest.mark.anyio

MODELS = catalog(
    model("a", options={"seconds_per_batch": 0.01, "seconds_per_cost": 0.0001, "load_seconds": 0.5}),
    model("b", ("score",), outputs=(), dims={}, options={"seconds_per_batch": 0.02, "load_seconds": 0.5}),
    model("g", ("generate",), outputs=(), dims={}, options={"seconds_per_batch": 0.005}),
)
ABOUT = About("t", "x", "now", "0", 0)


def trace(*arrived: float, model: str = "a", sizes=None, session=None, outputs=None) -> Trace:
    sizes = sizes or [10] * len(arrived)
    return Trace.of(
        "t",
        arrived,
        models=[model] * len(arrived),
        input_size=sizes,
        output_size=outputs,
        session=session,
    )


class Slow:
    """Answers after so many seconds; a number of them never."""

    name = "slow"
    shares_process = False

    def __init__(self, seconds: float, never: int = 0) -> None:
        self.seconds, self.never = seconds, never
        self.calls: list[tuple[float, str]] = []

    async def specs(self, models):
        return [MODELS.models["a"] for _ in models]

    async def estimate(self, request):
        return tuple(len(item.text.split()) for item in request.items)

    async def send(self, call):
        self.calls.append((anyio.current_time(), call.request.id))
        await anyio.sleep(math.inf if len(self.calls) <= self.never else self.seconds)
        return Outcome("ok", run=self.seconds)

    async def look(self):
        from replay.replaying.target import Look

        return Look()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": VirtualTimeLoop})], ids=["virtual"])
async def test_ten_minutes_of_a_real_trace_go_out_on_time_and_the_report_is_right():
    both = merged(
        [
            read(DATA / f"azure_llm_2023_{part}.csv.gz", model=name)
            for part, name in (("code", "a"), ("conv", "b"))
        ]
    )
    wanted = Wanted(between=(600, 1200), input_scale=0.05, output_scale=0.05)
    picked = chosen(both, None, wanted)
    async with engine(MODELS) as opened:
        done = await run(picked, Within(opened))

    made = report.of(done.log, ABOUT, lambda model, service_class: 2.0, shares_process=True)
    sending = made.sending
    assert len(picked.trace) == sending.sent == made.replayed.requests > 4000
    assert (sending.lag_max, sending.unsent, sending.void) == (0.0, 0, ())
    assert made.replayed.outcomes == {"ok": len(picked.trace)}
    assert made.replayed.loads == {"a": 1, "b": 1}
    answers = done.log.answers()
    assert answers.arrived == pytest.approx(picked.trace.arrived)
    # A request waits, is loaded for and runs: nothing of its time is anywhere else.
    parts = answers.prepare + answers.queue + answers.load + answers.run
    assert parts == pytest.approx(answers.latency, abs=1e-6)
    (row,) = [row for row in made.replayed.groups if row["model"] == "a"]
    mine = np.sort(answers.latency[answers.asked("a")])
    assert row["p50"] == mine[math.ceil(0.5 * len(mine)) - 1] and row["within"] == (mine <= 2.0).mean()
    assert made.replayed.devices[0].peak_bytes == pytest.approx(200 * 2**20, rel=0.01)
    assert 0 < made.replayed.devices[0].busy_share < 1
    assert made.replayed.peaks[1.0] == pytest.approx(max(made.replayed.peaks.values()))


async def test_a_slow_server_delays_nothing_and_latency_counts_from_the_intended_moment():
    slow = Slow(seconds=5.0)
    done = await run(chosen(trace(0, 1, 2, 3), None, Wanted()), slow)

    begin = done.log.begin
    assert [at - begin for at, _ in slow.calls] == pytest.approx([0, 1, 2, 3])
    assert done.log.answers().latency == pytest.approx([5.0] * 4)


async def test_a_sender_that_is_late_makes_the_run_void_and_says_so():
    log = Log(trace(0, 1, 2))
    log.intended[:], log.sent[:], log.done[:] = [0, 1, 2], [0, 1, 2.04], [1, 2, 3]
    log.outcomes = [Outcome("ok")] * 3

    (said,) = verdict.of(log, tightest=0.2, shares_process=False).void
    assert "p99 39" in said and "5.0 ms are allowed" in said
    assert log.answers().latency[2] == pytest.approx(1.0)  # from 2, not from 2.04
    assert verdict.of(log, tightest=10.0, shares_process=False).void == ()  # 1 % of it


async def test_what_was_not_sent_makes_the_run_void():
    log = Log(trace(0, 1))
    log.intended[:], log.sent[:], log.done[:] = [0, 1], [0, 1], [0, 1]
    log.outcomes = [Outcome("ok"), Outcome("NOT_SENT")]

    sending = verdict.of(log, tightest=10.0, shares_process=False)
    assert (sending.sent, sending.unsent, sending.void) == (1, 1, ("1 requests were not sent",))


async def test_who_never_answers_is_waited_for_and_then_counted():
    done = await run(chosen(trace(0, 1, 2), None, Wanted()), Slow(0.1, never=1))

    assert done.log.answers().told() == [WAITING, "ok", "ok"]
    assert done.log.answers().latency[0] == math.inf


async def test_speed_and_scale_and_only():
    slow = Slow(0.1)
    two = merged([trace(0, 10, 20), trace(5, 15, model="z")])
    done = await run(chosen(two, None, Wanted(speed=10, only=("a",))), slow)
    assert [at - done.log.begin for at, _ in slow.calls] == pytest.approx([0, 1, 2])

    twice = chosen(two, None, Wanted(scale=2, method=Method.DUP, names={"z": "a"}))
    assert len(twice.trace) == 10 and twice.trace.models == ("a",)
    assert dict(Wanted(scale=2, method=Method.DUP, input_scale=0.5).settings()) == {
        "inputs": "0.5 times",
        "load": "2 times, by dup",
    }


@pytest.mark.parametrize("wanted", [Wanted(speed=0), Wanted(input_scale=-1), Wanted(between=(5, 5))])
async def test_what_makes_no_sense_is_refused(wanted):
    with pytest.raises(BadTrace):
        chosen(trace(0, 1), None, wanted)


async def test_sessions_may_wait_for_their_answers():
    """Open: by the clock. Closed: the next turn comes after the answer and the recorded think time."""
    picked = chosen(trace(0, 1, 3, session=[0, 0, 0]), None, Wanted())
    picked.latency[:] = [0.4, 0.5, 0.1]  # think times 0.6 and 1.5
    slow = Slow(seconds=2.0)
    done = await run(picked, slow, closed_sessions=True)

    assert [at - done.log.begin for at, _ in slow.calls] == pytest.approx([0, 2.6, 6.1])
    assert done.log.answers().latency == pytest.approx([2.0] * 3)


async def test_a_run_that_is_stopped_keeps_what_it_has_measured():
    stop, log, slow = anyio.Event(), Log(trace(*range(100))), Slow(0.5)
    maker = await maker_for(chosen(log.trace, None, Wanted()), slow, 0)

    async def end() -> None:
        await anyio.sleep(10.6)
        stop.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        await replay(log, maker, slow, stop=stop)

    answers = log.answers()
    assert len(answers) == 10 and set(answers.told()) == {"ok"}
    sending = verdict.of(log, tightest=10.0, shares_process=True)  # virtual time says nothing of the CPU
    assert sending.aborted and sending.void == () and sending.requests == 100


async def test_each_kind_of_request_is_made_and_answered():
    mixed = merged([trace(0, sizes=[7]), trace(0.1, model="b"), trace(0.2, model="g", outputs=[3])])
    async with engine(MODELS) as opened:
        done = await run(chosen(mixed, None, Wanted()), Within(opened))
        seen = opened.closely.journal.newest(3)
        costs = {request.model: request.cost for request in seen}

    assert done.log.answers().told() == ["ok"] * 3
    assert done.log.outcomes[2].output_tokens == 3
    assert costs["a"] == 7


async def test_a_model_that_is_not_served_is_named():
    async with engine(MODELS) as opened:
        with pytest.raises(BadTrace, match="conv"):
            await run(chosen(trace(0, model="conv"), None, Wanted()), Within(opened))
