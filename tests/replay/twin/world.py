"""Six models, and traffic that makes them take turns."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import anyio
import numpy as np

from engine.engine import Engine
from engine.errors import EngineError
from engine.requests import EncodeOptions, GenerateOptions, Item, Request, ServiceClass, Task
from replay.trace import Trace
from replay.twin.traffic import Shape, Traffic
from tests.simulation import MIB, catalog, model


def six_models():
    """No two take the same time for anything, so that nothing happens at one moment by accident."""
    encoders = [
        model(
            f"m{n}",
            options={
                "weights_bytes": (90 + 17 * n) * MIB,
                "seconds_per_batch": 0.00413 + 0.00071 * n,
                "seconds_per_cost": 0.000213 + 0.0000171 * n,
                "load_seconds": 0.371 + 0.0613 * n,
                "restore_seconds": 0.0417 + 0.00113 * n,
                "workspace_per_cost": 900.0 + 111 * n,
            },
            service_class=("interactive", "standard", "background")[n % 3],
            weight=1.0 + n % 2,
            limits={"max_batch_cost": 512, "max_batch_jobs": 40},
            degrade="m1" if n == 2 else None,
        )
        for n in range(5)
    ]
    decoder = model(
        "g",
        ("generate",),
        options={
            "weights_bytes": 150 * MIB,
            "seconds_per_batch": 0.00317,
            "seconds_per_cost": 0.000107,
            "load_seconds": 0.533,
            "kv_bytes_per_token": 40_000,
        },
        limits={"max_running": 6},
    )
    return catalog(*encoders, decoder)


def drawn(rng: random.Random, now: float) -> Shape:
    """Popularity moves from one model to the next."""
    if rng.random() < 0.05:
        answer = rng.randint(1, 12)
        return Shape("g", (rng.randint(2, 60),), answer, answer)
    hot = int(now / 7) % 5
    unit = f"m{hot if rng.random() < 0.5 else rng.randrange(5)}"
    costs = tuple(rng.randint(1, 70) for _ in range(rng.choice([1, 1, 1, 3])))
    deadline = rng.choice([math.inf] * 5 + [0.3 + rng.random()])
    return Shape(unit, costs, deadline=deadline, principal=rng.choice(["", "x", "y"]))


def traffic(count: int, rate: float, seed: int) -> Traffic:
    """Bursts and lulls."""
    rng = random.Random(seed)
    shapes: dict[Shape, int] = {}
    arrived, rows, now = [], [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate) * (0.05 if rng.random() < 0.7 else 3.2)
        arrived.append(now)
        rows.append(shapes.setdefault(drawn(rng, now), len(shapes)))
    made = Trace.of(
        "made",
        arrived,
        models=[list(shapes)[row].unit for row in rows],
        input_size=rows,
        session=[rng.choice([-1, rng.randrange(20)]) for _ in rows],
    )
    classes = np.array([rng.choice(list(ServiceClass)) for _ in rows], dtype=np.int8)
    return Traffic(replace(made, service_class=classes), tuple(shapes))


async def send(opened: Engine, sent: Traffic, begin: float) -> list[str]:
    """Each at its moment after `begin`; the outcomes."""
    trace, outcomes = sent.trace, [""] * len(sent)

    async def one(index: int) -> None:
        shape = sent.shapes[trace.input_size[index]]
        generates = shape.unit == "g"
        ask = Request(
            f"q{index}",
            Task.GENERATE if generates else Task.ENCODE,
            shape.unit,
            tuple(Item(text=f"{index} " + "w " * (cost - 1)) for cost in shape.costs),
            GenerateOptions(max_new_tokens=shape.answer_tokens) if generates else EncodeOptions(),
            service_class=ServiceClass(int(trace.service_class[index])),
            deadline=anyio.current_time() + shape.deadline,
            session=f"s{trace.session[index]}" if trace.session[index] >= 0 else None,
            principal=shape.principal,
        )
        try:
            answer = await opened.submit(ask)
            outcomes[index] = "degraded" if answer.degraded_from else "ok"
        except EngineError as error:
            outcomes[index] = error.code

    async with anyio.create_task_group() as tasks:
        for index, at in enumerate(trace.arrived.tolist()):
            await anyio.sleep_until(begin + at)
            tasks.start_soon(one, index)
    return outcomes
