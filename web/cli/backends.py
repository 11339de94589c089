"""`serai backends`: engines that need an environment of their own, beside ours and never in it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from web.cli.options import as_table, settings_from, settings_options

if TYPE_CHECKING:
    from engine.backends.environment import Environment


@click.group()
def backends() -> None:
    """List, install and remove engines that run apart."""


@backends.command("list")
@settings_options
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def list_backends(config: Path | None, pairs: tuple[str, ...], as_json: bool, **flags: object) -> None:
    """Every backend: whether it is here, which version, where, and how large."""
    settings = settings_from(config, pairs, **flags)

    from engine.backends.environment import NAMES, Environment

    found = [_shown(Environment.of(name, settings)) for name in NAMES]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    headings = {"backend": "bold", "state": "", "version": "", "size": "", "interpreter": "dim"}
    rows = [
        (f["name"], f["state"], f["version"] or "", _size(int(f["bytes"] or 0)), f["python"] or "")
        for f in found
    ]
    as_table(headings, [[str(cell) for cell in row] for row in rows])


@backends.command()
@click.argument("name")
@settings_options
@click.option(
    "--python", default=sys.executable, metavar="FILE", help="Interpreter to make it with, 3.11 or newer."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def install(
    name: str, config: Path | None, pairs: tuple[str, ...], python: str, dry_run: bool, **flags: object
) -> None:
    """Make a backend's environment in the store; its versions are pinned.

    About 4 GiB are downloaded from the package index that pip is set to.
    """
    settings = settings_from(config, pairs, **flags)

    from engine.backends import installing
    from engine.backends.environment import Environment

    environment = Environment.of(name, settings)
    plan = installing.plan(environment, python)
    click.echo(f"{_size(installing.WHEELS_BYTES)} of wheels, up to {_size(installing.DISK_BYTES)} on disk:")
    for command in plan.commands:
        click.echo(f"  {shlex.join(command)}")
    if dry_run:
        for complaint in plan.complaints():
            click.echo(f"It would fail: {complaint}.")
        return
    seconds = installing.install(plan, click.echo)
    click.echo(f"{name} is in {environment.folder}: {_size(environment.size())}, {seconds:.0f} s.")


@backends.command()
@click.argument("name")
@settings_options
def remove(name: str, config: Path | None, pairs: tuple[str, ...], **flags: object) -> None:
    """Delete an environment that `install` made. One that `sglang_python` names is left alone."""
    settings = settings_from(config, pairs, **flags)

    from engine.backends import installing
    from engine.backends.environment import Environment

    environment = Environment.of(name, settings)
    freed = installing.remove(environment)
    click.echo(f"{environment.folder} is gone: {_size(freed)} came free.")


def _shown(environment: Environment) -> dict[str, str | int | None]:
    return {
        "name": environment.name,
        "state": environment.state,
        "version": environment.version(),
        "bytes": environment.size(),
        "python": str(environment.python) if environment.python else None,
    }


def _size(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB" if nbytes else "-"
