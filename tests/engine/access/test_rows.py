"""The table on disk: a change and its audit row are one, and another process's change is seen."""

from __future__ import annotations

import sqlite3

import pytest

from engine.access import rows
from engine.access.changes import Add, NewPassword, NewRole, Revoke
from engine.access.principals import Limits, Role, Scope, key, user
from engine.actors import state_store
from engine.errors import InvalidInput, UnknownPrincipal
from engine.requests import ServiceClass

KEY = key(
    "abcd",
    "CI bot",
    [Scope.CALL, Scope.METRICS],
    1.5,
    service_class=ServiceClass.INTERACTIVE,
    models=("a/*", "b"),
    limits=Limits(2.5, 4, 3),
)
ANN = user("ann", Role.ADMIN, 2.0)


@pytest.fixture
def db(database):
    opened = database()
    state_store.migrations.apply(opened)
    rows.migrations.apply(opened)
    return opened


def do(db, change, who="tester", reason=""):
    with db.atomic():
        return rows.change(db, change, who, reason)


def audit(db):
    return [(r["who"], r["action"], r["target"], r["reason"], r["outcome"]) for r in db["audit"].rows]


def test_what_was_written_reads_back_as_itself(db, database):
    do(db, Add(KEY, "hash"))
    do(db, Add(ANN, "scrypt$..."))
    known = rows.known(database())

    assert list(known.principals.values()) == [KEY, ANN]
    assert known.secrets == {"key:abcd": "hash", "user:ann": "scrypt$..."}
    assert known.generation == 2 and known.closed and known.has_users
    assert "hash" not in repr(known)


def test_every_change_is_audited_and_no_secret_is(db):
    do(db, Add(KEY, "topsecret"), "ann", "for the pipeline")
    do(db, Add(ANN, "topsecret"))
    do(db, Add(user("bob", Role.VIEWER, 3.0), "topsecret"))
    do(db, NewRole("user:bob", Role.ADMIN))
    do(db, NewPassword("user:bob", "topsecret"))
    do(db, Revoke("key:abcd"), "bob", "it leaked")

    assert audit(db) == [
        ("ann", "create", "key:abcd", "for the pipeline", "ok"),
        ("tester", "create", "user:ann", "", "ok"),
        ("tester", "create", "user:bob", "", "ok"),
        ("tester", "role", "user:bob", "", "ok"),
        ("tester", "password", "user:bob", "", "ok"),
        ("bob", "revoke", "key:abcd", "it leaked", "ok"),
    ]
    told = [tuple(row.values()) for row in db["audit"].rows]
    assert "topsecret" not in str(told)
    assert (told[-1][-2], told[-1][-1]) == ("CI bot, call+metrics", "revoked")


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (Add(key("efgh", "CI bot", [Scope.CALL], 1.0), "h"), InvalidInput, "already"),
        (Add(key("abcd", "other", [Scope.CALL], 1.0), "h"), InvalidInput, "another"),
        (Add(ANN, "h"), InvalidInput, "already"),
        (Revoke("user:bob"), UnknownPrincipal, "no user 'bob'"),
        (Revoke("key:none"), UnknownPrincipal, "no key 'none'"),
        (Revoke("user:ann"), InvalidInput, "only admin"),
        (NewRole("user:ann", Role.VIEWER), InvalidInput, "only admin"),
        (NewRole("key:abcd", Role.ADMIN), InvalidInput, "is a key"),
        (NewPassword("key:abcd", "h"), InvalidInput, "is a key"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(db, change, error, said):
    do(db, Add(KEY, "hash"))
    do(db, Add(ANN, "hash"))
    before = rows.known(db)
    with pytest.raises(error, match=said):
        do(db, change)

    assert rows.known(db) == before and len(audit(db)) == 2


def test_a_name_is_free_again_when_its_key_was_revoked_or_its_user_removed(db):
    do(db, Add(ANN, "hash"))
    do(db, Add(user("bob", Role.ADMIN, 1.0), "hash"))
    do(db, Add(KEY, "hash"))
    do(db, Revoke("key:abcd"))
    do(db, Revoke("user:bob"))
    known = do(db, Add(user("bob", Role.VIEWER, 5.0), "new"))
    known = do(db, Add(key("efgh", "CI bot", [Scope.CALL], 1.0), "h"))

    assert known.principals["user:bob"].role is Role.VIEWER and known.secrets["user:bob"] == "new"
    assert known.principals["user:bob"].revoked is None
    assert {p.id for p in known.principals.values() if p.name == "CI bot"} == {"key:abcd", "key:efgh"}


def test_another_process_sees_a_change_and_nothing_when_there_is_none(db, database):
    other = database()
    seen = rows.known(other).generation
    assert rows.newer(other, seen) is None
    do(db, Add(KEY, "hash"))

    newer = rows.newer(other, seen)
    assert newer is not None and "key:abcd" in newer.principals
    assert rows.newer(other, newer.generation) is None


def test_revoking_the_last_key_does_not_make_the_table_as_if_there_never_was_one(db):
    do(db, Add(KEY, "hash"))

    assert do(db, Revoke("key:abcd")).closed


def test_a_session_that_was_left_is_remembered_until_it_would_have_ended(db):
    with db.atomic():
        rows.end_session(db, "old", 10.0)
    with db.atomic():
        known = rows.end_session(db, "new", 1e12)

    assert known.ended == {"new"}


def test_when_each_was_seen_is_kept_without_waking_anybody(db):
    before = do(db, Add(KEY, "hash"))
    with db.atomic():
        rows.keep_uses(db, {"key:abcd": 77.0, "key:none": 1.0})

    assert rows.known(db).principals["key:abcd"].last_used == 77.0
    assert rows.newer(db, before.generation) is None


def test_the_key_of_sessions_outlasts_a_restart(db, database):
    assert len(rows.known(db).cookie_key) == 32
    assert rows.known(db).cookie_key == rows.known(database()).cookie_key
    assert rows.known(db).cookie_key != rows.known(db_named(database)).cookie_key


def db_named(database):
    return database("another.db")


def test_whether_a_server_was_ever_closed_is_known_before_it_starts(db, tmp_path):
    assert not rows.closed_at(tmp_path / "it.db") and not rows.closed_at(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    do(db, Add(KEY, "hash"))
    (tmp_path / "junk.db").write_bytes(b"junk" * 1000)

    assert rows.closed_at(tmp_path / "it.db") and not rows.closed_at(tmp_path / "junk.db")


def test_nobody_else_on_the_machine_may_read_it(db, tmp_path):
    do(db, Add(KEY, "hash"))

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("it.db*")}
    assert len(modes) >= 2 and set(modes.values()) == {0o600}


def test_a_disk_that_refuses_leaves_the_table_as_it_was(db):
    db.execute("pragma query_only=1")
    with pytest.raises(sqlite3.OperationalError):
        do(db, Add(KEY, "hash"))
    db.execute("pragma query_only=0")

    assert not rows.known(db).closed
