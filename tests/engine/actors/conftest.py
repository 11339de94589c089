from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from engine.actors.state_store import open_database

REAL_CLOCK = pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["real"])
"""For tests with worker threads: they do not live in virtual time."""


@pytest.fixture
def database(tmp_path: Path):
    """A database file that is closed after the test."""
    opened: list[Database] = []

    def open_again(name: str = "it.db") -> Database:
        opened.append(open_database(tmp_path / name, "full"))
        return opened[-1]

    yield open_again
    for db in opened:
        with contextlib.suppress(sqlite3.Error):
            db.close()
