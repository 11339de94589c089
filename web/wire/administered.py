"""What the routes of operators and of pools answer, as types; the reference is made of them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from engine.wishes import Audited
from web.wire.described import Exact


class PoolStatus(Exact):
    """Times are seconds since the epoch."""

    state: str
    assigned_workers: list[dict[str, str]]
    created_at: float
    last_renewed: float


class PoolAnswer(Exact):
    name: str
    spec: dict[str, Any]
    status: PoolStatus


class PoolEntry(Exact):
    name: str
    state: str
    gpus: dict[str, int]
    worker_count: int


class PoolList(Exact):
    pools: list[PoolEntry]


class PoolDeleted(Exact):
    name: str
    deleted: bool


class PausedAll(Exact):
    paused: bool
    version: int


class Audit(Exact):
    actions: list[Audited]


class KeyShown(Struct):
    """Times are seconds since the epoch; null for what has not happened, and for limits that are none."""

    id: str
    name: str
    scopes: list[str]
    models: list[str]
    rate: float | None
    burst: int | None
    concurrency: int | None
    created: float
    last_used: float | None
    revoked: float | None


class KeyMade(KeyShown):
    """`key` is the secret, which is told here only."""

    key: str


class KeyList(Exact):
    """Each also with what it `used` since the start."""

    keys: list[KeyShown]


class UserShown(Exact):
    name: str
    role: str
    created: float
    last_used: float | None
    removed: float | None


class UserList(Exact):
    users: list[UserShown]
