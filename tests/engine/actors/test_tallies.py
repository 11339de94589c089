"""What requests are counted on, and how Prometheus reads it."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from engine.actors.tallies import SECONDS, Tallies
from engine.events import RequestDone


def done(outcome: str = "ok", model: str = "m", **fields: object) -> RequestDone:
    plain = {
        "request": "r",
        "model": model,
        "task": "encode",
        "service_class": 1,
        "session": None,
        "arrived": 0.0,
        "outcome": outcome,
        "items": 2,
        "cost": 5,
        "input_tokens": 5,
        "output_tokens": 3,
        "prepare_seconds": 0.0,
        "queue_seconds": 0.0,
        "load_seconds": 0.0,
        "run_seconds": 0.0,
        "total_seconds": 0.0,
        "cold": False,
    }
    return RequestDone(**(plain | fields))  # type: ignore[arg-type]


def written(tallies: Tallies) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(tallies)
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if x[0] != "#")}


def test_durations_are_written_as_the_library_writes_its_own() -> None:
    registry, rng, tallies = CollectorRegistry(), random.Random(1), Tallies()
    theirs = Histogram("serai_stage_seconds", "", ("model", "stage"), buckets=SECONDS, registry=registry)
    for _ in range(500):
        seconds = rng.choice([rng.choice(SECONDS), 0.0, 300.0 * rng.random() ** 4])
        tallies.count(done(queue_seconds=seconds))
        theirs.labels("m", "queue").observe(seconds)

    lines = [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]
    ours = written(tallies)
    for line in lines:
        if line[0] != "#":
            name, _, value = line.rpartition(" ")
            assert ours[name] == float(value)


def test_only_what_was_answered_counts_its_items_and_tokens() -> None:
    tallies = Tallies()
    for outcome in ("ok", "degraded", "QUEUE_FULL"):
        tallies.count(done(outcome))

    seen = written(tallies)
    assert seen['serai_requests_total{model="m",outcome="QUEUE_FULL",task="encode"}'] == 1
    assert seen['serai_items_total{model="m"}'] == 4
    assert seen['serai_tokens_total{direction="out",model="m"}'] == 6
    assert seen['serai_class_seconds_count{class="standard"}'] == 2
    assert seen['serai_class_seconds_count{class="interactive"}'] == 0


def test_a_name_of_no_model_is_no_label() -> None:
    tallies = Tallies()
    for number in range(3):
        tallies.count(done("MODEL_NOT_FOUND", f"made-up-{number}"))

    seen = written(tallies)
    assert seen['serai_requests_total{model="unknown",outcome="MODEL_NOT_FOUND",task="encode"}'] == 3
    assert not any("made-up" in name for name in seen)


def test_writing_an_answer_is_a_stage_of_its_model() -> None:
    tallies = Tallies()
    tallies.count(done())
    tallies.encoded("m", 0.3)

    assert written(tallies)['serai_stage_seconds_bucket{le="0.5",model="m",stage="encode"}'] == 1
