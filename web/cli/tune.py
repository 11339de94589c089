"""`serai tune`: what serves a model best on this machine, measured, shown, and written where wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from web.cli.options import Finite, as_table, catalogue, settings_from, settings_options

if TYPE_CHECKING:
    from engine.catalog import ModelSpec, Profile
    from engine.config import Settings
    from engine.tuning.tune import Report, Tried

PROFILE = "tuned"


@click.command()
@click.argument("model")
@click.option("--minutes", type=Finite(min=0.1, max=24 * 60), default=5.0, show_default=True)
@click.option("--int8", is_flag=True, help="Also try eight bits: cosine 0.99 to float32 is then enough.")
@click.option("--write", is_flag=True, help=f"Add the result to the entry as its profile `{PROFILE}`.")
@settings_options
def tune(
    model: str,
    minutes: float,
    int8: bool,
    write: bool,
    config: Path | None,
    pairs: tuple[str, ...],
    **flags: object,
) -> None:
    """Measure how MODEL is served best on this machine.

    Tries backends, dtypes, batches and slots. What is kept answers as the model in float32 does. Ctrl-C
    ends it; nothing is written then. Run it while no server uses the device.
    """
    from engine.adapters.forward.weights import likely_device
    from engine.devices.host import core_quota
    from engine.sources.locate import Sources
    from engine.tuning.tune import Tuning

    settings = settings_from(config, pairs, **flags)
    spec, profile = catalogue(settings).resolve(model)
    device = likely_device(spec.devices)
    _one_thread_a_slot()
    sources = Sources.of(settings)
    chosen = spec.profiled(profile)
    slots = max(1, int(core_quota())) if device == "cpu" else 2
    slots = min(slots, chosen.limits.max_slots or slots)
    tuning = Tuning(chosen, sources.locate, device, slots, 60 * minutes)
    report = tuning.run(int8, lambda what: click.echo(f"trying: {what}", err=True))
    _show(report)
    assert report.profile is not None, "a run that ends has chosen"
    if write:
        _write(settings, spec, report.profile)
    else:
        click.echo(f"`--write` adds this as {spec.id}:{PROFILE}.")


def _one_thread_a_slot() -> None:
    """As the server runs slots."""
    import torch

    torch.set_num_threads(1)


def _show(report: Report) -> None:
    headings = {"tried": "bold", "to float32": "", "best batch": "", "ms": "", "cost/s": "", "": "dim"}
    as_table(headings, [_row(tried) for tried in report.tried])
    for tried in report.tried:
        if tried.name == report.chosen:
            points = ", ".join(f"{point.cost}: {1e3 * point.seconds:.0f} ms" for point in tried.curve)
            click.echo(f"Chosen: {tried.name}. Cost curve: {points}.")
    if report.ratios:
        rounds = " ".join(f"{ratio:.2f}" for ratio in report.ratios)
        click.echo(
            f"Against the entry as it is, in turns: median {report.gain:.2f} times as fast ({rounds})."
        )
    rates = ", ".join(f"{slots}: {rate:.0f}" for slots, rate in report.rates.items())
    click.echo(f"Cost a second by slots: {rates}. Best: {report.slots}.")
    click.echo(
        f"Waiting for company saves an item at most {1e3 * report.fixed_seconds:.1f} ms, the fixed part of "
        "a batch; the window is the server's setting window_share."
    )


def _row(tried: Tried) -> tuple[str, ...]:
    far, best = tried.apart, tried.best
    how = "" if far is None else f"{far.max_difference:.1e}" if far.cosine is None else f"{far.cosine:.6f}"
    if best is None:
        return (tried.name, how, "", "", "", tried.why_not[:80])
    return (tried.name, how, str(best.cost), f"{1e3 * best.seconds:.1f}", f"{best.rate:.0f}", tried.why_not)


def _write(settings: Settings, spec: ModelSpec, profile: Profile) -> None:
    """Into the directory that a running server writes its own entries to; a mistake changes nothing."""
    from engine import own_entries
    from engine.catalog import CatalogError

    own = settings.state_dir / "catalog"
    entry = spec.model_copy(update={"profiles": {**spec.profiles, PROFILE: profile}})
    parsed = own_entries.parse(own_entries.written(entry))
    before = own_entries.write(own, parsed)
    try:
        catalogue(settings)
    except CatalogError:
        own_entries.put_back(own, spec.id, before)
        raise
    click.echo(f"Written: {own_entries.place(own, spec.id)}. It takes the place of the bundled entry.")
    click.echo(
        f"Ask for {spec.id}:{PROFILE}, or options.profile: {PROFILE}. A running server reads it within "
        "seconds, or when the catalogue is reloaded."
    )
