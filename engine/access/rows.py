"""The table of principals on disk, in `state.db`. Every change and its audit row are one transaction.

The server writes through its state store. `serai keys` and `serai users` write the same file beside it;
the server sees that by the generation, which every change raises.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, assert_never

from sqlite_utils import Database, Migrations
from sqlite_utils.db import Table

from engine.access.changes import Add, Change, Known, NewPassword, NewRole, Revoke
from engine.access.principals import BY_ROLE, BY_SCOPE, Action, Kind, Limits, Principal, Role, Scope
from engine.errors import InvalidInput, UnknownPrincipal
from engine.requests import ServiceClass

migrations = Migrations("access")


@migrations()
def principals_and_sessions(db: Database) -> None:
    """Times are seconds since the epoch. `secret` is a hash; for a user with its salt and parameters."""
    _table(db, "principals").create(
        {
            "id": str,
            "kind": str,
            "name": str,
            "secret": str,
            "scopes": str,
            "role": str,
            "service_class": int,
            "models": str,
            "rate": float,
            "burst": int,
            "concurrency": int,
            "created": float,
            "last_used": float,
            "revoked": float,
        },
        pk="id",
    )
    _table(db, "ended_sessions").create({"session": str, "until": float}, pk="session")
    _table(db, "access").create({"generation": int, "cookie_key": bytes})
    _table(db, "access").insert({"generation": 0, "cookie_key": secrets.token_bytes(32)})


def known(db: Database) -> Known:
    """Everything."""
    migrations.apply(db)
    generation, cookie_key = db.execute("select generation, cookie_key from access").fetchone()
    rows = list(_table(db, "principals").rows_where(order_by="created, id"))
    ended = frozenset(row["session"] for row in _table(db, "ended_sessions").rows)
    return Known(
        generation,
        {row["id"]: _principal(row) for row in rows},
        {row["id"]: row["secret"] for row in rows},
        ended,
        cookie_key,
    )


def newer(db: Database, than: int) -> Known | None:
    """Everything, when somebody changed it since the generation `than`."""
    (generation,) = db.execute("select generation from access").fetchone()
    return known(db) if generation != than else None


def change(db: Database, wanted: Change, who: str, reason: str = "") -> Known:
    """Do it, in the transaction that the caller has begun, and audit it. Never with a secret.

    Raises InvalidInput or UnknownPrincipal when it cannot be; then nothing was changed.
    """
    db.execute("update access set generation = generation + 1")
    now, table = time.time(), known(db).principals
    before, after = table.get(wanted.target), ""
    match wanted:
        case Add(principal, secret):
            _check_free(principal, table)
            _table(db, "principals").upsert(_row(principal) | {"secret": secret}, pk="id")
            after = _said(principal)
        case Revoke(target):
            _check_admins(_living(target, table), table)
            _table(db, "principals").update(target, {"revoked": now})
            after = "revoked"
        case NewRole(target, role):
            user = _user(target, table)
            if role is not Role.ADMIN:
                _check_admins(user, table)
            _table(db, "principals").update(target, {"role": role.value})
            after = role.value
        case NewPassword(target, secret):
            _user(target, table)
            _table(db, "principals").update(target, {"secret": secret})
        case _:
            assert_never(wanted)
    _table(db, "audit").insert(
        {
            "recorded_at": now,
            "who": who,
            "action": wanted.action,
            "target": wanted.target,
            "reason": reason,
            "before": _said(before) if before else "",
            "after": after,
            "outcome": "ok",
            "concluded_at": now,
        }
    )
    return known(db)


def end_session(db: Database, session: str, until: float) -> Known:
    """A session was left. It is remembered until it would have ended by itself."""
    db.execute("update access set generation = generation + 1")
    _table(db, "ended_sessions").delete_where("until < ?", [time.time()])
    _table(db, "ended_sessions").upsert({"session": session, "until": until}, pk="session")
    return known(db)


def keep_uses(db: Database, uses: Mapping[str, float]) -> None:
    """When principals were last seen. It raises no generation: nobody acts on it."""
    for principal, at in uses.items():
        db.execute("update principals set last_used = ? where id = ?", [at, principal])


def closed_at(path: Path) -> bool:
    """Whether the database in this file ever had a key or a user. One that is not there had none, as far
    as anybody can tell; nor had one that cannot be read."""
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(path)) as connection:
            return known(Database(connection)).closed
    except sqlite3.Error:
        return False


def _living(target: str, table: Mapping[str, Principal]) -> Principal:
    found = table.get(target)
    if found is None or found.revoked is not None:
        kind, _, name = target.partition(":")
        raise UnknownPrincipal(f"There is no {kind} {name!r}, or it is revoked already.")
    return found


def _user(target: str, table: Mapping[str, Principal]) -> Principal:
    if (found := _living(target, table)).kind is not Kind.USER:
        raise InvalidInput(f"{found.name} is a {found.kind}; only users have a role and a password.")
    return found


def _check_free(wanted: Principal, table: Mapping[str, Principal]) -> None:
    if wanted.kind is Kind.KEY and wanted.id in table:
        raise InvalidInput("By chance there is such a key already; make another.")
    for other in table.values():
        if other.kind is wanted.kind and other.name == wanted.name and other.revoked is None:
            raise InvalidInput(f"There is a {wanted.kind} {wanted.name!r} already.")


def _check_admins(target: Principal, table: Mapping[str, Principal]) -> None:
    """Somebody must be left who can let others in."""
    admins = [p for p in table.values() if p.role is Role.ADMIN and p.revoked is None]
    if admins == [target]:
        raise InvalidInput(f"{target.name} is the only admin; make somebody else one first.")


def _said(principal: Principal) -> str:
    """What an audit row tells of it."""
    what = principal.role or "+".join(principal.scopes)
    return f"{principal.name}, {what}" + (", revoked" if principal.revoked else "")


def _row(principal: Principal) -> dict[str, Any]:
    limits = principal.limits
    return {
        "id": principal.id,
        "kind": principal.kind.value,
        "name": principal.name,
        "scopes": " ".join(principal.scopes),
        "role": principal.role.value if principal.role else None,
        "service_class": None if principal.service_class is None else int(principal.service_class),
        "models": json.dumps(principal.models),
        "rate": limits.rate,
        "burst": limits.burst,
        "concurrency": limits.concurrency,
        "created": principal.created,
        "last_used": principal.last_used,
        "revoked": principal.revoked,
    }


def _principal(row: Mapping[str, Any]) -> Principal:
    scopes = tuple(Scope(scope) for scope in row["scopes"].split())
    role = Role(row["role"]) if row["role"] else None
    actions = BY_ROLE[role] if role else frozenset[Action]().union(*(BY_SCOPE[scope] for scope in scopes))
    return Principal(
        id=row["id"],
        kind=Kind(row["kind"]),
        name=row["name"],
        actions=actions,
        scopes=scopes,
        role=role,
        service_class=None if row["service_class"] is None else ServiceClass(row["service_class"]),
        models=tuple(json.loads(row["models"])),
        limits=Limits(row["rate"], row["burst"], row["concurrency"]),
        created=row["created"],
        last_used=row["last_used"],
        revoked=row["revoked"],
    )


def _table(db: Database, name: str) -> Table:
    table = db[name]
    assert isinstance(table, Table)
    return table
