"""Options that several commands share, and how flags become settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from engine.catalog import Catalog
    from engine.config import Settings

F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A range of numbers. Click's own lets NaN into each, and infinity into one without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


def settings_options(command: F) -> F:
    """`--config`, `--set`, and where models and their weights are looked for."""
    for option in reversed(
        [
            click.option(
                "--config", type=click.Path(path_type=Path), help="TOML file to read settings from."
            ),
            click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Any other setting."),
            click.option("--catalog", multiple=True, metavar="DIR", help="Further catalogue directory."),
            click.option("--store", metavar="DIR", help="Where weights are kept."),
            click.option("--online/--offline", default=None, help="Whether a model hub may be asked."),
        ]
    ):
        command = option(command)
    return command


def state_options(command: F) -> F:
    """`--config`, `--set`, and where the server keeps its state."""
    for option in reversed(
        [
            click.option(
                "--config", type=click.Path(path_type=Path), help="TOML file to read settings from."
            ),
            click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Any other setting."),
            click.option("--state-dir", metavar="DIR", help="Where the server keeps its state."),
        ]
    ):
        command = option(command)
    return command


def settings_from(config: Path | None, pairs: tuple[str, ...], **flags: object) -> Settings:
    """The effective settings; an option that was not given counts for nothing. Raises SettingsError."""
    from engine.config import load

    given: dict[str, object] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--set")
        given[key.strip()] = value
    given |= {name: value for name, value in flags.items() if value not in (None, ())}
    return load(given, file=config)


def catalogue(settings: Settings) -> Catalog:
    """The bundled entries and those of the operator's own directories. Raises CatalogError."""
    from engine import catalog
    from engine.adapters import family
    from engine.own_entries import together
    from engine.resources import bundled

    directories = together([bundled("catalog"), *settings.catalog], settings.state_dir / "catalog")
    return catalog.load(directories, families=family.names())


def described(known: Catalog, names: Iterable[str]) -> None:
    """Raises ClickException for models of a recording that this catalogue does not describe."""
    from engine.errors import InvalidInput, UnknownModel

    lacking = []
    for name in names:
        try:
            known.named(name)
        except (UnknownModel, InvalidInput):
            lacking.append(name)
    if lacking:
        raise click.ClickException(
            f"The catalogue here does not describe {', '.join(lacking)[:500]}, which the recorded server "
            "served. Give it that server's own entries: --catalog or SERAI_CATALOG names their directory."
        )


def as_table(columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under `columns`: heading -> rich style."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading, style in columns.items():
        table.add_column(heading, style=style, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # whoever reads a pipe wants whole words
    console.print(table)
