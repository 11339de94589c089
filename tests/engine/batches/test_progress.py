"""Which lines are left, how many go at once, and how a batch ends: whatever happens in between."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.kept import Batch, Counts, Status, last
from engine.batches.progress import FIRST, MOST, TRIES, Pace, Progress

BATCH = Batch(
    id="batch_1",
    owner="key:a",
    endpoint="/v1/embeddings",
    input_file_id="file-1",
    window="1h",
    created_at=100.0,
    expires_at=3700.0,
    output_id="file-2",
    error_id="file-3",
)
ACTS = st.lists(st.sampled_from(["take", "good", "bad", "back", "crash"]), max_size=200)


@given(total=st.integers(1, 20), acts=ACTS, pick=st.randoms(use_true_random=False))
def test_whatever_happens_each_line_is_answered_once_and_none_is_lost(total, acts, pick):
    progress, under_way = Progress(total), set[int]()
    written: dict[int, bool] = {}
    for act in acts:
        if act == "take":
            line = progress.take()
            assert line not in written and line not in under_way
            under_way |= {line} - {None}
        elif act == "crash":  # what was under way is forgotten; what was written is read again
            good = [line for line, well in written.items() if well]
            progress = Progress(total, good, written.keys() - set(good))
            under_way.clear()
        elif under_way:
            line = pick.choice(sorted(under_way))
            under_way.remove(line)
            if act == "back":
                progress.back(line)
            else:
                written[line] = act == "good"
                progress.written(line, act == "good")
        good_ones = sum(written.values())
        assert progress.counts == Counts(total, good_ones, len(written) - good_ones)
        assert set(progress.left()) == set(range(total)) - written.keys() - under_way
        assert progress.complete == (len(written) == total)

    for line in under_way:
        progress.back(line)
    rest = []
    while (line := progress.take()) is not None:
        rest.append(line)
    assert sorted(rest + list(written)) == list(range(total))


def test_a_line_that_may_have_broken_something_is_tried_a_few_times():
    progress = Progress(1)

    assert [progress.tried(0) for _ in range(TRIES)] == [True] * (TRIES - 1) + [False]


def test_a_refusal_halves_the_pace_once_and_holds_it_as_long_as_it_says():
    pace = Pace()
    for _ in range(FIRST):
        assert pace.wait(0.0) == 0.0
        pace.began()
    assert pace.wait(0.0) is None

    for _ in range(3):
        pace.refused(2.0, now=1.0)

    assert pace.width == FIRST // 2
    assert pace.wait(2.0) == 1.0 and pace.wait(3.0) is None
    for _ in range(FIRST - 3):
        pace.done()
    assert pace.wait(3.0) == 0.0


def test_without_refusals_the_pace_grows_to_its_limit():
    pace = Pace()
    for _ in range(MOST * MOST):
        pace.began()
        pace.done()

    assert pace.width == MOST


@given(st.lists(st.sampled_from(Status), max_size=6), st.booleans(), st.floats(0, 10_000))
def test_what_has_ended_stays_as_it_is_and_is_kept_as_it_was(states, complete, now):
    batch = BATCH
    for status in states:
        before, batch = batch, batch.to(status, now)
        assert batch == before if before.ended else batch.status is status
    assert msgspec.json.decode(msgspec.json.encode(batch), type=Batch) == batch
    if not batch.ended:
        expected = Status.COMPLETED if complete else Status.EXPIRED if now >= 3700 else None
        assert last(batch, complete, now) is (
            Status.CANCELLED if batch.status is Status.CANCELLING else expected
        )
