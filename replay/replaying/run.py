"""One replay from end to end: measure the models' lines, send, watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from engine.requests import Request
from replay.payloads import Maker, line_of, most_wanted
from replay.replaying.log import Log
from replay.replaying.sending import Told, replay
from replay.replaying.target import Target
from replay.replaying.wanted import Chosen, think_times


@dataclass(frozen=True, slots=True)
class Done:
    log: Log
    notes: tuple[str, ...]
    """On the traffic and on how its payloads were made."""


async def maker_for(
    chosen: Chosen, target: Target, seed: int, kept: Mapping[int, Request] | None = None
) -> Maker:
    """Raises BadTrace for a model that the target does not serve."""
    trace = chosen.trace
    specs = await target.specs(trace.models)
    lines = {}
    for index, spec in enumerate(specs):
        lines[index] = await line_of(spec, most_wanted(trace, index, spec), target.estimate)
    return Maker(trace, specs, seed, lines, kept or {})


async def run(
    chosen: Chosen,
    target: Target,
    *,
    seed: int = 0,
    kept: Mapping[int, Request] | None = None,
    closed_sessions: bool = False,
    stop: anyio.Event | None = None,
    told: Told = lambda log: None,
) -> Done:
    """Send all of it. `stop` ends it early; what was measured until then is kept."""
    maker = await maker_for(chosen, target, seed, kept)
    log = Log(chosen.trace)
    think = think_times(chosen.trace, chosen.latency) if closed_sessions else None
    await replay(log, maker, target, think=think, stop=stop, told=told)
    notes = [*chosen.trace.notes, *maker.notes]
    if closed_sessions:
        notes.append("a session's next request waits for the answer before it, and then as long as recorded")
    return Done(log, tuple(notes))
