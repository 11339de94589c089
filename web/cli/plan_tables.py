"""What `serai plan` shows: one table or a few lines for each kind of finding."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from web.cli.options import as_table

if TYPE_CHECKING:
    from replay.capacity import Capacity
    from replay.comparison import Comparison
    from replay.cost import Cost
    from replay.groups import Group
    from replay.most import Most
    from replay.plan import Basis
    from replay.rules import Check
    from replay.search import Fit, PinStep, Tuning
    from replay.study import Study
    from replay.validation import Validation

GIB = 2**30


def checks(found: Sequence[Check]) -> None:
    rows = [(check.name, "holds" if check.ok else "DOES NOT", check.text) for check in found]
    as_table({"rule": "bold", "": "", "found": ""}, rows)


def capacity(found: Capacity) -> None:
    shown = [f"{window:g} s: {peak:.3g}" for window, peak in found.peaks.items()]
    click.echo(f"Mean {found.rate:.3g} requests/s; busiest " + ", ".join(shown))
    knee = found.knee
    if knee.knee_slo is None:
        click.echo("The knee was not reached.")
    else:
        interval = f" ({knee.low:.3g} to {knee.high:.3g})" if knee.low and knee.high else ""
        click.echo(
            f"Carrying limit (knee_slo): {knee.knee_slo:.3g} requests/s{interval}; {found.fails_first}"
        )
        over = [f"{window:g} s: {ratio:.2f}" for window, ratio in found.knee_ratios.items()]
        click.echo("Knee over peak: " + ", ".join(over))
    most = knee.saturation
    click.echo(
        f"Saturation: {_number(most)}; first inflection, its shape only: {_number(knee.first_inflection)}"
    )
    for each in found.most:
        click.echo(f"k* by {each.method}: {each.k:.2f}; then {each.beyond or 'nothing failed'}")
    said = "enough" if found.enough else "TOO LITTLE"
    click.echo(f"Redundancy: {found.redundancy:.2f}, {said}")
    rows = []
    knees = {(m.unit, m.service_class): m for m in found.models}
    for group in found.base:
        own = knees.get((group.unit, group.service_class))
        limit = f"{own.rate:.3g}" if own and own.rate else "above"
        rows.append((*_columns(group), limit))
    as_table({**_HEADS, "knee /s": ""}, rows)
    uses = [
        (use.unit, f"{use.rate:.3g}", f"{use.busy:.1%}", f"{use.peak_bytes / GIB:.3g} GiB", str(use.loads))
        for use in found.uses
    ]
    as_table({"model": "bold", "requests/s": "", "slots' time": "", "memory": "", "loads": ""}, uses)


_HEADS = {
    "model": "bold",
    "requests": "",
    "p50": "",
    "p95": "",
    "p99": "",
    "target": "",
    "within": "",
    "stage": "",
}


def _columns(group: Group) -> tuple[str, ...]:
    times = [_seconds(each) for each in (group.p50, group.p95, group.p99, group.target)]
    return (group.name, str(group.requests), *times, f"{group.within:.2%}", group.stage)


def comparison(found: Comparison) -> None:
    rows = []
    for each in found.differences:
        was, now = each.before, each.after
        pairs = [
            f"{_seconds(getattr(was, q)) if was else 'none'} > {_seconds(getattr(now, q)) if now else 'none'}"
            for q in ("p50", "p95", "p99")
        ]
        within = f"{was.within:.2%} > {now.within:.2%}" if was and now else ""
        loads = f"{each.loads_before} > {each.loads_after}"
        rows.append((each.name, *pairs, within, loads, "" if now is None or now.holds else "FAILS"))
    as_table({"model": "bold", "p50": "", "p95": "", "p99": "", "within": "", "loads": "", "": "red"}, rows)
    if found.fails is not None:
        click.echo(f"Fails first: {found.fails}")
    for price in found.prices:
        hurt = f"; hurts {', '.join(price.hurt)}" if price.hurt else ""
        own, others = [f"{a:.1%} > {b:.1%}" for a, b in (price.own_cold, price.others_cold)]
        late = f"{price.late[0]} > {price.late[1]}"
        click.echo(f"The pin of {price.unit}: cold requests {own}, the others' {others}; late {late}{hurt}")
    for unit, count in found.extrapolated.items():
        click.echo(f"Extrapolated: {count} batches of {unit} are of a size that was never seen to run.")
    for note in found.notes:
        click.echo(f"Note: {note}")


def most(found: Comparison, reached: Most) -> None:
    """How far its targets hold; at no scale where something is never answered."""
    if found.unserved:
        names = ", ".join(group.name for group in found.unserved)
        click.echo(f"At the recorded load nothing is answered of {names}, so targets hold at no scale.")
    elif reached.beyond is not None and not reached.k:
        click.echo(f"Targets hold at no scale that was tried ({reached.method}): {reached.beyond}.")
    elif reached.beyond is not None:
        held = f"up to {reached.k:.2f} times its busiest minutes ({reached.method})"
        click.echo(f"Targets hold {held}. Then {reached.beyond}.")


def provenance(known: Basis, extrapolated: bool = False) -> None:
    told = known.provenance(extrapolated)
    badge, at = told["badge"], told["validated_at"]
    if badge == "failed":
        badge = f"failed ({time.strftime('%Y-%m-%d %H:%M', time.localtime(at))})"
    click.echo(
        f"From {told['trace']}: {told['requests']} requests in {told['seconds']:g} s; {told['server']}; "
        f"curves {told['curves']}, seed {told['seed']}; {badge}."
    )
    for text in (*told["notes"], *told["assumed"]):
        click.echo(f"Note: {text}")


def _seconds(value: float) -> str:
    return "never" if value == float("inf") else f"{value:.3g} s"


def _number(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.3g} requests/s"


def fits(found: Sequence[Fit], k: float) -> None:
    rows = [
        (str(fit.cards), f"{fit.memory_bytes / GIB:.3g} GiB", "yes" if fit.one_lost else "no", fit.smaller)
        for fit in found
    ]
    as_table({"cards": "bold", "memory": "", "one may be lost": "", "with less": ""}, rows)
    if not found:
        click.echo(f"No number of cards was found that carries {k:g} times the busiest period.")


def pins(found: Sequence[PinStep]) -> None:
    rows = [(s.unit, f"{s.saved:.3g} s", f"{s.per_gib:.3g} s", f"{s.taken:.3g} s") for s in found]
    as_table({"pin": "bold", "late less": "", "for each GiB": "", "taken from others": ""}, rows)
    if not found:
        click.echo("No pin saves anything.")


def tunings(found: Sequence[Tuning]) -> None:
    for each in found:
        click.echo(f"{each.change}: seconds over target {each.before:.3g} > {each.after:.3g}")
    if not found:
        click.echo("No other window or weight that was tried is better.")


def cost(found: Cost) -> None:
    knee = "unknown" if found.per_million_at_knee is None else f"{found.per_million_at_knee:.3g}"
    click.echo(f"A million requests cost {found.per_million:.3g} as it is, and {knee} at the knee.")
    click.echo(f"With a server for each model: {found.per_million_apart:.3g}, on {found.cards_apart} cards.")
    for unit in found.not_apart:
        click.echo(f"{unit} alone holds its targets on no number of cards that was tried.")
    click.echo(f"No card runs anything {found.idle_hours:.1f} hours of 24.")


def study(found: Study) -> None:
    comparison(found.comparison)
    capacity(found.capacity)
    checks(found.checks)
    if found.pins is not None:
        pins(found.pins)
        tunings(found.tunings)
    if found.cost is not None:
        cost(found.cost)


def validation(found: Validation, lag: float, limit: float) -> None:
    noise = {each.model: each for each in found.noise}
    rows = []
    for each in found.errors:
        twin = [f"{getattr(each, name):+.0%}" for name in _OFF]
        other = noise.get(each.model)
        real = [f"{getattr(other, name):+.0%}" if other else "" for name in _OFF]
        pairs = [f"{a} ({b})" for a, b in zip(twin, real, strict=True)]
        memory = "/".join(f"{size / 2**20:.0f}" for size in each.peak_bytes)
        rows.append((each.model, str(each.requests), *pairs, "/".join(map(str, each.swaps)), memory))
    heads = ("requests", *_OFF, "loads", "MiB")
    as_table({"model": "bold", **dict.fromkeys(heads, "")}, rows)
    click.echo("The twin less the real run, in shares of it; in brackets a second real run less the first.")
    click.echo("Loads and bytes: real/twin.")
    if found.tried:
        _tried(found)
    click.echo(f"p99 lag of the sending: {1000 * lag:.1f} ms")
    if lag > limit:
        said = f"Void: requests went out late, and {1000 * limit:.1f} ms are allowed. Nothing of it is kept."
        click.secho(said, fg="red")
        return
    for text in found.missed:
        click.secho(f"Missed: {text}", fg="red")


def _tried(found: Validation) -> None:
    rows = [
        (each.name, *(f"{1000 * p95:.1f}" for p95 in (each.real, each.twin)), "/".join(map(str, each.loads)))
        for each in found.tried
    ]
    as_table({"configuration": "bold", "real p95 ms": "", "twin p95 ms": "", "loads": ""}, rows)
    if found.tau is not None:
        click.echo(f"They are ranked with a tau of {found.tau:.2f}, where they differ by more than noise.")
    if found.capacity_error is not None:
        click.echo(f"What is served of a burst: the twin is {found.capacity_error:+.0%} off.")


_OFF = ("p50", "p95", "p99", "throughput")
