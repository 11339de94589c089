"""How `serai keys` and `serai users` reach the table: in `state.db` itself, whether a server runs or not.

Whoever may write that file may do anything to it, so nothing more is asked of them; through the admin
API the first key could not be made, nor a lost one replaced. A running server looks for changes twice a
second. Both write in transactions, so neither can harm the other.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sqlite_utils import Database

    from engine.access.changes import Change, Known
    from engine.config import Settings


@contextmanager
def state(settings: Settings) -> Iterator[Database]:
    """The database of these settings, up to date. Raises SettingsError when it cannot be opened."""
    import sqlite3

    from engine.access import rows
    from engine.actors import state_store
    from engine.config import SettingsError

    path = settings.state_dir / "state.db"
    try:
        db = state_store.open_database(path, "full")
        state_store.migrations.apply(db)
        rows.migrations.apply(db)
    except (OSError, sqlite3.Error) as error:
        raise SettingsError([f"{settings.origin('state_dir')}: state_dir: {path}: {error}"]) from None
    try:
        yield db
    finally:
        db.close()


def change(settings: Settings, wanted: Change, reason: str) -> Known:
    """Done, audited and on disk when this returns. Raises EngineError."""
    from engine.access import rows

    with state(settings) as db, db.atomic():
        return rows.change(db, wanted, f"command line ({getpass.getuser()})", reason)


def known(settings: Settings) -> Known:
    from engine.access import rows

    with state(settings) as db:
        return rows.known(db)


def day(at: float | None) -> str:
    """A time as lists tell it."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def password(from_stdin: bool) -> str:
    """What is kept of a password that is asked for, twice, or read as one line."""
    from engine.access import credentials

    if from_stdin:
        said = sys.stdin.readline().rstrip("\r\n")
    else:
        said = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    try:
        return credentials.password_hash(said)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
