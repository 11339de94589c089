"""`serai plan`: what a server could carry, and what it would do if it were otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from web.cli import plan_tables
from web.cli.options import Finite, catalogue, described
from web.cli.plan_options import SETTINGS, basis_options, change_options
from web.cli.sizes import TIMES
from web.cli.supervised import SUPERVISED, end_with_input, tell

if TYPE_CHECKING:
    from replay.plan import Basis
    from replay.validation import Validation
    from replay.whatif import Change


PRICE = Finite(min=0, max=1e6, min_open=True)

VOID = 3
"""How a validation ends that says nothing."""

WORTH = 3000
"""Requests below which a few runs are over before processes for them have started."""


def _workers(known: Basis | None = None) -> int:
    """For a ramp, whatever it is of; with `known` for a few runs of that."""
    return 1 if known is not None and len(known.traffic) < WORTH else os.cpu_count() or 1


@click.group()
def plan() -> None:
    """From recorded traffic: how much more is carried, and what if."""


@plan.command()
@basis_options
def capacity(basis: Callable[[], Basis], as_json: bool) -> None:
    """The knee, the carrying limit and the redundancy, and the rules. Exits with 1 when it is too little."""
    from replay.atonce import at_once
    from replay.capacity import measure
    from replay.plan import as_json as told
    from replay.rules import checks

    known = basis()
    with at_once(_workers()) as calls:
        found = measure(known.server, known.traffic, known.seed, calls=calls)
    rules = list(checks(found, known.server, known.days))
    if as_json:
        ratios = {"knee_ratios": found.knee_ratios, "redundancy": found.redundancy, "enough": found.enough}
        beyond = found.results.beyond
        click.echo(told(known, extrapolated=beyond, capacity=found, verdict=ratios, checks=rules))
    else:
        plan_tables.capacity(found)
        plan_tables.checks(rules)
        plan_tables.provenance(known, found.results.beyond)
    raise SystemExit(0 if found.enough else 1)


@plan.command()
@basis_options
@change_options
def whatif(basis: Callable[[], Basis], change: Change, as_json: bool) -> None:
    """What would change for each model, what fails first, and what each pin costs the others."""
    from replay.atonce import at_once
    from replay.comparison import compare
    from replay.most import busiest, most_by
    from replay.plan import as_json as told

    known = basis()
    before = change.part(known.traffic)
    server, traffic = change.server(known.server), change.asked(before, known.seed)
    with at_once(_workers(known)) as calls:
        limit = calls(most_by, [(server, busiest(traffic), change.method, known.seed)])
        found, _ = compare((known.server, before), (server, traffic), known.seed, calls)
        reached = next(limit)
    beyond = found.beyond or change.speed is not None
    if as_json:
        most = None if found.unserved else reached
        click.echo(told(known, extrapolated=beyond, change=str(change), comparison=found, most=most))
        return
    click.echo(f"Against the recorded server: {change}")
    plan_tables.comparison(found)
    plan_tables.most(found, reached)
    if change.speed is not None:
        click.echo("Note: times go by the speed alone. A card that was not measured may be a quarter off.")
    plan_tables.provenance(known, beyond)


@plan.command()
@basis_options
def pins(basis: Callable[[], Basis], as_json: bool) -> None:
    """Which pins are worth their bytes, one after the other, and windows and weights that are better."""
    from replay import search
    from replay.atonce import at_once
    from replay.plan import as_json as told

    known = basis()
    with at_once(_workers(known)) as calls:
        steps = search.pins(known.server, known.traffic, known.seed, calls)
        tuned = search.tunings(known.server, known.traffic, known.seed, calls)
    if as_json:
        click.echo(told(known, pins=steps, tunings=tuned))
        return
    plan_tables.pins(steps)
    plan_tables.tunings(tuned)
    plan_tables.provenance(known)


@plan.command()
@basis_options
@click.option("--redundancy", type=TIMES, default=2.0, show_default=True, help="Times the busiest period.")
@click.option("--price", type=PRICE, help="Of one card for an hour.")
def size(basis: Callable[[], Basis], redundancy: float, price: float | None, as_json: bool) -> None:
    """The smallest cards that meet every target, with one lost too; and what serving costs."""
    from replay import search
    from replay.atonce import at_once
    from replay.capacity import measure
    from replay.cost import cost
    from replay.most import busiest
    from replay.plan import as_json as told
    from replay.twin.twin import simulate

    known = basis()
    server, traffic, seed = known.server, known.traffic, known.seed
    money = None
    with at_once(_workers()) as calls:
        found = list(search.smallest(server, busiest(traffic), seed, redundancy, calls))
        if price is not None:
            results = simulate(server, traffic, seed, keep=True)
            limit = measure(server, traffic, seed, calls=calls, known=results).carrying_limit
            money = cost(server, traffic, results, limit, price, seed, calls)
    if as_json:
        click.echo(told(known, fits=found, cost=money))
        return
    plan_tables.fits(found, redundancy)
    if money is not None:
        plan_tables.cost(money)
    plan_tables.provenance(known)


@plan.command()
@basis_options
@change_options
@click.option("--price", type=PRICE, help="Of one card for an hour.")
@click.option("--search", is_flag=True, help="Look for better pins, windows and weights too.")
@click.option("--supervised", is_flag=True, help=SUPERVISED)
def study(
    basis: Callable[[], Basis],
    change: Change,
    price: float | None,
    search: bool,
    supervised: bool,
    as_json: bool,
) -> None:
    """All of it of one what-if, as the console shows it. Exits with 1 when the redundancy is too little."""
    from replay.atonce import at_once
    from replay.plan import as_json as told
    from replay.study import Asked
    from replay.study import study as studied

    if supervised:
        end_with_input()
        tell({"said": "reading the recording", "step": 0, "of": 1})
    known = basis()

    def step(said: str, number: int, of: int) -> None:
        if supervised:
            tell({"said": said, "step": number, "of": of})

    with at_once(_workers()) as calls:
        found = studied(known, Asked(change, price, search), calls=calls, told=step)
    limit, beyond = found.capacity, found.beyond or change.speed is not None
    if as_json:
        ratios = {"knee_ratios": limit.knee_ratios, "redundancy": limit.redundancy, "enough": limit.enough}
        click.echo(told(known, extrapolated=beyond, change=str(change), verdict=ratios, study=found))
    else:
        click.echo(f"Against the recorded server: {change}")
        plan_tables.study(found)
        plan_tables.provenance(known, beyond)
    raise SystemExit(0 if limit.enough else 1)


@plan.command()
@basis_options
@click.option(
    "--minutes",
    type=Finite(min=0, max=24 * 60, min_open=True),
    default=1.5,
    show_default=True,
    help="So much is replayed, twice, in real time.",
)
def validate(basis: Callable[[], Basis], minutes: float, as_json: bool) -> None:
    """Replay on the real engine here, and say how far off the twin was. Exits with 1 when it was too far, and
    with 3 when requests went out so late that it says nothing; then it is not kept.

    Three tenths are replayed under each of ten or so configurations, too, so that all of it takes about six
    times as long. The result is kept, and plans from the same readings show it as their badge.
    """
    import anyio

    from replay.plan import as_json as told
    from replay.realrun import Bench
    from replay.realrun import validate as compared

    known, settings = basis(), click.get_current_context().meta[SETTINGS]
    served = catalogue(settings)
    described(served, known.traffic.trace.models)
    bench = Bench(settings, served, known.seed)

    async def work() -> tuple[Validation, float]:
        return await compared(known, bench, 60 * minutes, told=lambda said: click.echo(said, err=True))

    found, lag = anyio.run(work)
    path = known.keep(found, lag)
    if as_json:
        click.echo(told(known, validation=found, missed=found.missed, lag=lag, void=path is None))
    else:
        plan_tables.validation(found, lag, known.lag_limit)
        if path is not None:
            click.echo(f"Kept in {path}.")
    raise SystemExit(VOID if path is None else 1 if found.missed else 0)
