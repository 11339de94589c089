"""The table in memory: never ahead of the disk, and a key that is revoked stops at once."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

from engine.access import rows
from engine.access.access import Access, StateBox
from engine.access.changes import Add, NewRole, Revoke
from engine.access.credentials import key_hash, new_key, public_part
from engine.access.principals import LOCAL, Limits, Role, Scope, key, user
from engine.actors.actor import Mailbox
from engine.actors.state_store import StateStore
from engine.config import Settings
from engine.errors import EngineError, Forbidden, InvalidInput, RateLimited, Unauthorized
from tests.engine.actors.conftest import REAL_CLOCK

pytestmark = [pytest.mark.anyio, REAL_CLOCK]


@asynccontextmanager
async def opened(db, **settings):
    """An access over the real state store."""
    with Mailbox(100) as mailbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(StateStore(mailbox, db).run)
            yield Access(Settings(**settings), StateBox(mailbox), rows.known(db))
            tasks.cancel_scope.cancel()


def made(name="bot", **fields):
    secret = new_key()
    row = key(public_part(secret), name, fields.pop("scopes", [Scope.CALL]), 1.0, **fields)
    return secret, Add(row, key_hash(secret))


async def test_a_key_counts_once_it_is_on_disk_and_survives(database):
    secret, add = made()
    async with opened(database()) as access:
        with pytest.raises(Unauthorized):
            access.by_key(secret)
        await access.change(add, "ann")
        assert access.by_key(secret).name == "bot"

    async with opened(database()) as access:
        assert access.by_key(secret).name == "bot"


async def test_a_revoked_key_stops_at_once(database):
    secret, add = made()
    async with opened(database()) as access:
        await access.change(add, "ann")
        principal = access.by_key(secret)
        assert access.stands(principal)
        await access.change(Revoke(principal.id), "ann")

        with pytest.raises(Unauthorized, match="revoked"):
            access.by_key(secret)
        assert not access.stands(principal)


async def test_another_key_of_the_same_public_part_is_no_key(database):
    secret, add = made()
    async with opened(database()) as access:
        await access.change(add, "ann")
        for wrong in (new_key(), secret[:-1], "", "sk-123", "serai_" + "0" * 49):
            with pytest.raises(Unauthorized):
                access.by_key(wrong)
        forged = next(k for k in iter(new_key, None) if k != secret)
        rigged = access._known
        access._known = type(rigged)(
            principals={f"key:{public_part(forged)}": add.principal},
            secrets={f"key:{public_part(forged)}": add.secret},
        )
        with pytest.raises(Unauthorized, match="does not know"):
            access.by_key(forged)


async def test_what_the_disk_refuses_does_not_count(database):
    secret, add = made()
    db = database()
    async with opened(db) as access:
        db.execute("pragma query_only=1")
        with pytest.raises(EngineError, match="refused a write"):
            await access.change(add, "ann")
        db.execute("pragma query_only=0")

        with pytest.raises(Unauthorized):
            access.by_key(secret)
        await access.change(add, "ann")
        with pytest.raises(InvalidInput, match="already"):
            await access.change(made()[1], "ann")


async def test_what_the_command_line_changes_is_taken_in(database, monkeypatch):
    monkeypatch.setattr("engine.access.access.LOOK_EVERY", 0.01)
    secret, add = made()
    async with opened(database()) as access, anyio.create_task_group() as tasks:
        tasks.start_soon(access.watch)
        other = database()
        with other.atomic():
            rows.change(other, add, "command line")
        with anyio.fail_after(5):
            while not access.principals:  # noqa: ASYNC110  another process would not tell us either
                await anyio.sleep(0.01)
        assert access.by_key(secret)
        with other.atomic():
            rows.change(other, Revoke(add.principal.id), "command line")
        with anyio.fail_after(5):
            while access.stands(add.principal):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


async def test_a_disk_that_is_gone_is_said_once_and_seen_again_when_it_is_back(database, monkeypatch, caplog):
    monkeypatch.setattr("engine.access.access.LOOK_EVERY", 0.01)
    _, add = made()
    db = database()
    async with opened(db) as access, anyio.create_task_group() as tasks:
        db.execute("alter table access rename to elsewhere")
        tasks.start_soon(access.watch)
        await anyio.sleep(0.1)
        db.execute("alter table elsewhere rename to access")
        other = database()
        with other.atomic():
            rows.change(other, add, "command line")
        with anyio.fail_after(5):
            while not access.principals:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()

    assert caplog.text.count("are not seen") == 1


async def test_an_answer_that_comes_late_does_not_undo_a_newer_one(database):
    async with opened(database()) as access:
        before = access._known
        await access.change(made()[1], "ann")
        access._take(before)

        assert len(access.principals) == 1


async def test_when_a_key_was_used_is_kept(database):
    db = database()
    _, add = made()
    async with opened(db) as access:
        await access.change(add, "ann")
        assert access.last_used(add.principal) is None
        access.seen(add.principal)
        access.seen(LOCAL)
        assert access.last_used(add.principal) > 1e9
        await access.keep()

    assert rows.known(db).principals[add.principal.id].last_used > 1e9


async def test_too_many_requests_of_one_key_are_told_when_to_come_back(database):
    _, add = made(limits=Limits(rate=2.0, burst=1, concurrency=5))
    async with opened(database()) as access:
        leave = access.enter(add.principal, 10.0)
        with pytest.raises(RateLimited, match="2 requests a second, 1 at once and 5 in flight") as caught:
            access.enter(add.principal, 10.0)
        assert caught.value.retry_after == pytest.approx(0.5)
        access.enter(add.principal, 10.5)()
        leave()


async def test_a_key_for_some_models_is_for_no_other(database):
    _, add = made(models=("a/*",))
    async with opened(database()) as access:
        access.check_model(add.principal, "a/b")
        with pytest.raises(Forbidden, match=r"not for b/c; it is for a/\*"):
            access.check_model(add.principal, "b/c")


@pytest.mark.parametrize(
    ("settings", "fresh", "after"),
    [
        ({}, True, False),
        ({"auth": "keys"}, False, False),
        ({"auth": "off"}, True, True),
        ({"host": "0.0.0.0"}, False, False),
        ({"host": "0.0.0.0", "auth": "off"}, False, False),
        ({"host": "::1"}, True, False),
        ({"host": "localhost"}, True, False),
    ],
)
async def test_it_is_open_only_to_its_own_machine_and_only_until_there_was_a_key(
    database, settings, fresh, after
):
    _, add = made()
    async with opened(database(), **settings) as access:
        assert access.open is fresh is access.stands(LOCAL)
        await access.change(add, "ann")
        assert access.open is after
        await access.change(Revoke(add.principal.id), "ann")
        assert access.open is after


async def test_beyond_loopback_the_first_user_is_made_with_a_token_and_nobody_after(database):
    db = database()
    async with opened(db, host="0.0.0.0") as access:
        assert len(access.invitation) >= 20
        await access.change(made()[1], "ann")
        assert access.invitation
        await access.change(Add(user("ann", Role.ADMIN, 1.0), "h"), "token")
        assert access.invitation is None

    async with opened(db, host="0.0.0.0") as access:
        assert access.invitation is None
    async with opened(database("other.db")) as access:
        assert access.invitation is None


async def test_another_role_ends_what_the_old_one_began(database):
    async with opened(database()) as access:
        for name in ("ann", "bob"):
            await access.change(Add(user(name, Role.ADMIN, 1.0), "h"), "x")
        before = access.user("bob")
        await access.change(NewRole("user:bob", Role.VIEWER), "ann")

        assert not access.stands(before) and access.stands(access.user("bob"))
        await access.change(Revoke("user:bob"), "ann")
        assert access.user("bob") is None


async def test_a_server_without_state_says_that_it_can_make_no_key():
    with pytest.raises(EngineError, match="keeps no state"):
        await Access(Settings()).change(made()[1], "ann")
