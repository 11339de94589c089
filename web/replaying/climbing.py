"""A ramp as a command: a line for every step, and a file that has all of it after each."""

from __future__ import annotations

import json
import math
from pathlib import Path

import anyio
import click

from engine.catalog import Catalog
from replay.ramp import Dwell
from replay.replaying import ramping
from replay.replaying.ramping import Climb
from replay.replaying.wanted import Chosen
from replay.sweeps import Judged
from web.replaying import bar
from web.replaying.going import Going, kept_of, open_target, stop_on_signal, target_of


async def climb(going: Going, picked: Chosen, catalog: Catalog, near: float) -> bool:
    """Whether all of it counts. `near`: seconds of a step close to the knee."""
    stop = anyio.Event()
    out = going.base.with_name(going.base.name + ".ramp.json")

    def after(done: Climb) -> None:
        save(done, out, going.wanted.seed)
        step = done.sweeps[-1][-1]
        click.echo(f"sweep {len(done.sweeps)}, {step.offered:.3g} requests/s: {_met(step)}")

    async with open_target(going, picked, catalog) as target, anyio.create_task_group() as tasks:
        await tasks.start(stop_on_signal, stop)
        with bar.shown("ramp", math.inf) as told:
            done = await ramping.climb(
                picked,
                target,
                target_of(going.settings, catalog),
                seed=going.wanted.seed,
                dwell=Dwell(far=near / 4, near=near),
                stop=stop,
                kept=kept_of(going),
                told=told,
                after=after,
            )
        tasks.cancel_scope.cancel()
    save(done, out, going.wanted.seed)
    _say(done, out, going.wanted.seed)
    return not done.void


def _met(step: Judged) -> str:
    if not step.parts:
        return "too few requests of any model to judge by"
    return f"{step.worst}" if step.worst else f"holds, p99 {step.p99:.2f} of the target"


def save(done: Climb, out: Path, seed: int) -> None:
    """Whole or not at all: it is written again after every step."""
    part = out.with_name(out.name + ".part")
    part.write_text(json.dumps(_finite(done.as_json(seed))), "utf-8")
    part.replace(out)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _say(done: Climb, out: Path, seed: int) -> None:
    if any(done.sweeps):
        knee = done.knee(seed)
        between = f" (90 %: {knee.low:.3g} to {knee.high:.3g})" if knee.low and knee.high else ""
        found = f"{knee.knee_slo:.3g} requests/s{between}" if knee.knee_slo else "not reached"
        click.echo(f"The knee of {knee.sweeps} sweeps: {found}.")
        if knee.saturation:
            click.echo(f"Saturation: {knee.saturation:.3g} requests/s.")
    for why in done.void:
        click.secho(f"A step is void, {why}.", fg="red")
    click.echo(f"{out} has every step.")
