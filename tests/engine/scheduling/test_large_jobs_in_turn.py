"""Jobs that fill a batch alone, as documents do, and the only seat of a model that writes: class and keys."""

from __future__ import annotations

from engine.requests import ServiceClass
from engine.scheduling.batching import PASSES, Room, form
from tests.engine.scheduling.jobs import BACKGROUND, INTERACTIVE, STANDARD, job, lane
from tests.engine.twin import Sim, Twin

SLOW, QUICK = 1200, 10
"""Pages, of a tenth of a second each: a document that is given up after two minutes, and one of a second."""


def converting(slots: int = 1) -> Twin:
    """A model of documents as the catalogue has it: one child, one document at a time."""
    twin = Twin(Sim("docs", per_batch=0.0, per_cost=0.1, facts={"max_slots": 1}), slots=slots)
    twin.submit("docs", 1, max_batch_jobs=1)
    twin.run(5.0)
    twin.ran.clear()
    return twin


def documents(twin: Twin, count: int, key: str, cost: int, service_class: ServiceClass) -> list[str]:
    return [
        twin.submit("docs", cost, service_class, principal=key, max_batch_jobs=1, max_batch_cost=2000)
        for _ in range(count)
    ]


def began_before(twin: Twin, job: str, key: str, since: float) -> int:
    """Documents of `key` that began after `since` and before `job` did."""
    theirs = [twin.started[j] for ran in twin.ran for j in ran.jobs if twin.jobs[j].principal == key]
    return sum(since < at < twin.started[job] for at in theirs)


def test_an_interactive_document_waits_for_the_one_that_runs_and_no_other_of_another_key() -> None:
    for service_class in (STANDARD, BACKGROUND):
        twin = converting(slots=2)
        documents(twin, 20, "a", SLOW, service_class)
        twin.run(twin.now + 300.0)  # all of theirs are long due
        asked = twin.now
        mine = documents(twin, 5, "b", QUICK, INTERACTIVE)
        twin.run()

        assert [began_before(twin, one, "a", asked) for one in mine] == [0] * 5
        assert max(twin.latency(one) for one in mine) <= (SLOW + 5 * QUICK) * 0.1
        twin.check_at_rest()


def test_keys_of_one_class_take_turns_by_what_their_documents_cost() -> None:
    twin = converting()
    documents(twin, 20, "a", SLOW, STANDARD)
    twin.run(twin.now + 300.0)
    asked = twin.now
    mine = documents(twin, 10, "b", SLOW // 2, STANDARD)
    late = documents(twin, 1, "c", QUICK, STANDARD)
    twin.run()

    # Whoever comes anew starts where the others are: it has earned nothing, and owes nothing.
    assert began_before(twin, mine[0], "a", asked) <= 1
    assert began_before(twin, late[0], "a", asked) + began_before(twin, late[0], "b", asked) <= 2
    assert 4 <= began_before(twin, mine[9], "a", asked) <= 6
    twin.check_at_rest()


def test_what_is_due_first_waits_for_so_many_batches_at_most() -> None:
    twin = converting()

    twin.clients(
        "docs", 3, 200.0, cost=QUICK, service_class=INTERACTIVE, principal="b", max_batch_jobs=1
    )  # two wait at any time
    twin.run(twin.now + 5.0)
    (old,) = documents(twin, 1, "a", QUICK, BACKGROUND)
    twin.run()

    due, started = twin.jobs[old].due, twin.started[old]
    assert due < started, "it was never due first, which is what this is about"
    assert sum(due <= ran.began < started for ran in twin.ran) <= PASSES + 2
    twin.check_at_rest()


def test_a_job_too_large_for_company_does_not_hold_up_a_more_urgent_batch() -> None:
    large = job("large", cost=1000, due=1.0, service_class=BACKGROUND)
    urgent = [job(f"u{n}", due=9.0, service_class=INTERACTIVE, principal="b") for n in range(3)]
    waiting = lane(large, *urgent)
    room = Room(2000, dict.fromkeys(ServiceClass, 100))

    assert form(waiting, room, 0.0, lambda each: True).jobs == urgent
    assert form(waiting, room, 0.0, lambda each: True).jobs == [large]


def test_the_only_free_seat_goes_by_class() -> None:
    old = job("old", due=1.0, kv_tokens=10, service_class=BACKGROUND)
    urgent = job("urgent", due=9.0, kv_tokens=10, service_class=INTERACTIVE)

    assert form(lane(old, urgent), Room(100, jobs=1), 0.0, lambda each: True).jobs == [urgent]
    assert form(lane(old, urgent), Room(100, jobs=2), 0.0, lambda each: True).jobs == [old, urgent]


def test_a_second_try_goes_first_whatever_waits() -> None:
    again = job("again", cost=1000, due=5.0, attempt=2)
    waiting = lane(job("urgent", due=1.0, service_class=INTERACTIVE))
    waiting.put_back(again)

    assert form(waiting, Room(1000), 0.0, lambda each: True).jobs == [again]


def test_who_is_dead_has_no_turn() -> None:
    old, gone = job("old", cost=90, due=1.0), job("gone", due=2.0, service_class=INTERACTIVE)
    urgent = job("urgent", cost=90, due=3.0, service_class=INTERACTIVE)

    formed = form(lane(old, gone, urgent), Room(100), 0.0, lambda each: each is not gone)

    assert (formed.jobs, formed.abandoned) == ([urgent], [gone])
