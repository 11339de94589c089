from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import ClientSession, CookieJar
from sqlite_utils import Database

from engine.access import credentials, rows
from engine.access.access import Access
from engine.access.changes import Add, Change, Known
from engine.access.principals import Role, Scope, key, user
from engine.actors import state_store
from engine.config import Settings
from tests.web.fakes import FakeEngine

PASSWORD = "correct horse"
CHEAP = credentials._scrypt(PASSWORD, b"salt", 4, 8, 1)
KEPT = f"scrypt$4$8$1${credentials.b64encode(b'salt').decode()}${credentials.b64encode(CHEAP).decode()}"
"""The password's hash, made with parameters that cost a test nothing."""


class Rows:
    """The table in a database, at once and in this thread."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def change(self, wanted: Change, who: str, reason: str) -> Known:
        with self.db.atomic():
            return rows.change(self.db, wanted, who, reason)

    async def newer(self, than: int) -> Known | None:
        return rows.newer(self.db, than)

    async def end_session(self, session: str, until: float) -> Known:
        with self.db.atomic():
            return rows.end_session(self.db, session, until)

    async def keep_uses(self, uses: Mapping[str, float]) -> None:
        rows.keep_uses(self.db, uses)


@dataclass
class Guarded:
    """An engine with keys and users, and their secrets."""

    engine: FakeEngine
    db: Database

    def key(self, name: str, *scopes: Scope, **fields: object) -> str:
        """A new key's secret."""
        secret = credentials.new_key()
        row = key(credentials.public_part(secret), name, scopes or (Scope.CALL,), 1.0, **fields)
        self._do(Add(row, credentials.key_hash(secret)))
        return secret

    def user(self, name: str, role: Role) -> None:
        self._do(Add(user(name, role, 1.0), KEPT))

    def _do(self, change: Change) -> None:
        with self.db.atomic():
            self.engine.access._take(rows.change(self.db, change, "tester"))

    def audit(self) -> list[tuple[str, str, str, str]]:
        return [(r["who"], r["action"], r["target"], r["outcome"]) for r in self.db["audit"].rows]


@pytest.fixture
def guarding(tmp_path: Path) -> Callable[..., Guarded]:
    """Makes a guarded engine; `settings` are as the operator would set them."""
    opened: list[Database] = []

    def make(**settings: object) -> Guarded:
        db = state_store.open_database(tmp_path / f"{len(opened)}.db", "normal")
        opened.append(db)
        state_store.migrations.apply(db)
        chosen = Settings.model_validate(settings)
        access = Access(chosen, Rows(db), rows.known(db))
        return Guarded(FakeEngine(chosen, access=access), db)

    yield make
    for db in opened:
        db.close()


@pytest.fixture
def guarded(guarding: Callable[..., Guarded]) -> Guarded:
    return guarding()


@pytest.fixture
def engine(guarded: Guarded) -> FakeEngine:
    return guarded.engine


def a_browser(url: str) -> ClientSession:
    """A client that keeps cookies, and says as browsers do that its own pages ask."""
    headers = {"Sec-Fetch-Site": "same-origin"}
    return ClientSession(url, cookie_jar=CookieJar(unsafe=True), headers=headers)


@pytest.fixture
async def browser(url: str) -> AsyncIterator[ClientSession]:
    async with a_browser(url) as session:
        yield session


async def log_in(browser: ClientSession, name: str, password: str = PASSWORD) -> None:
    form = {"name": name, "password": password}
    async with browser.post("/login", data=form, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}
