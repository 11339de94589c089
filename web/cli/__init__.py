"""The `serai` command: what it can do, and how it says that something is wrong.

Commands import what they need when they run: `serai --help` loads no model library.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from engine import __version__
from web.cli.backends import backends
from web.cli.call import call
from web.cli.demo import demo
from web.cli.docs import docs
from web.cli.doctor import doctor
from web.cli.keys import keys
from web.cli.models import models
from web.cli.plan import plan
from web.cli.record import record
from web.cli.replay import replay
from web.cli.serve import serve
from web.cli.tune import tune
from web.cli.users import users


class _WrongSettings(click.ClickException):
    exit_code = 2


class _Commands(click.Group):
    """Says what the user can mend in one line each; what we must mend keeps its traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are added, which is the order in which they are needed."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            complaint = _complaint(error)
            if complaint is None:
                raise
            raise complaint from None


def _complaint(error: BaseException) -> click.ClickException | None:
    from engine.catalog import CatalogError
    from engine.config import SettingsError
    from engine.errors import EngineError
    from replay.trace import BadTrace
    from web.calling.failing import CallFailed
    from web.demo.failing import DemoFailed

    leaves = list(_leaves(error))
    known = SettingsError | CatalogError | EngineError | BadTrace | DemoFailed | CallFailed
    if not all(isinstance(leaf, known) for leaf in leaves):
        return None
    # The engine's errors speak to HTTP callers; here the same list is a command.
    said = "\n".join(str(leaf) for leaf in leaves).replace("GET /v1/models lists", "`serai models list` says")
    wrong = any(isinstance(leaf, SettingsError | CatalogError) for leaf in leaves)
    return _WrongSettings(said) if wrong else click.ClickException(said)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """What an exception group holds; task groups wrap whatever goes wrong inside them."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for part in error.exceptions:
        yield from _leaves(part)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="serai")
def serai() -> None:
    """Many small models, one card, one server, one API, one queue."""


@click.command()
def version() -> None:
    """Print the version and nothing else."""
    click.echo(__version__)


COMMANDS = (
    serve,
    call,
    demo,
    models,
    tune,
    backends,
    record,
    replay,
    plan,
    keys,
    users,
    doctor,
    docs,
    version,
)
for command in COMMANDS:
    serai.add_command(command)


def main() -> None:
    serai(prog_name="serai")
