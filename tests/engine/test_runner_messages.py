"""All that goes to a runner and comes back is plain data: it survives msgpack."""

from __future__ import annotations

from typing import get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.chosen import Chance, Chosen
from engine.conversation import Finished, JobRef, Lease, Outcome, Progress, Run
from engine.errors import KINDS, EngineError, Failure

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
count = st.integers(0, 2**62)
number = st.floats(allow_nan=False)
plain = st.recursive(
    st.none() | st.booleans() | count | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)

leases = st.builds(Lease, count, text, text, text, count, count, st.lists(text, max_size=2).map(tuple))
refs = st.builds(JobRef, text, count, text)
failures = st.builds(
    Failure,
    st.sampled_from(sorted(KINDS)),
    text,
    st.none() | count,
    st.none() | number,
    st.dictionaries(text, plain, max_size=3),
)
outcomes = st.builds(Outcome, text, st.none() | text, st.none() | failures)
chances = st.builds(Chance, st.binary(max_size=5), number)
chosen = st.builds(Chosen, chances, st.lists(chances, max_size=2).map(tuple))
progress = st.builds(Progress, text, text, count, st.lists(chosen, max_size=2).map(tuple))
texts = st.lists(text, max_size=4).map(tuple)
runs = st.builds(
    Run, count, leases, st.lists(refs, max_size=4).map(tuple), texts, texts, number, st.booleans(), count
)
finished = st.builds(
    Finished,
    count,
    leases,
    st.lists(outcomes, max_size=4).map(tuple),
    number,
    st.lists(progress, max_size=4).map(tuple),
    st.booleans(),
    count,
    st.booleans(),
)
messages = {
    Run: runs,
    Finished: finished,
    Progress: progress,
    Outcome: outcomes,
    Lease: leases,
    JobRef: refs,
    Failure: failures,
}


@pytest.mark.parametrize("kind", messages, ids=lambda kind: kind.__name__)
def test_every_runner_message_survives_msgpack(kind):
    @settings(max_examples=30, deadline=None)
    @given(messages[kind])
    def survives(message):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=kind) == message

    survives()


@pytest.mark.parametrize("kind", messages, ids=lambda kind: kind.__name__)
def test_the_strategies_know_every_field(kind):
    """A field that is added to a message is added here too."""
    known = {
        Run: 8,
        Finished: 8,
        Progress: 4,
        Outcome: 3,
        Lease: 7,
        JobRef: 3,
        Failure: 5,
    }

    assert len(get_type_hints(kind)) == known[kind]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_error_comes_back_as_the_class_that_it_was(name):
    error = KINDS[name]("it broke", item=3, pins=["a"]).after(1.5)

    there = msgspec.msgpack.decode(msgspec.msgpack.encode(error.failure()), type=Failure)
    back = there.error()

    assert type(back) is KINDS[name] and back.code == error.code
    assert (back.message, back.item, back.retry_after, back.details) == ("it broke", 3, 1.5, {"pins": ["a"]})


def test_an_error_of_another_version_is_still_an_error():
    assert type(Failure("FromTheFuture", "hm").error()) is EngineError
