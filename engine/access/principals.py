"""API keys and users as plain values, and what each of them may do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from engine.requests import ServiceClass


class Kind(StrEnum):
    KEY = "key"
    USER = "user"
    LOCAL = "local"  # whoever asks a server that is open to its own machine


class Action(StrEnum):
    """What a route lets its caller do. Every route needs exactly one."""

    SEE = "see"  # models, queues, devices: looking changes nothing and costs nothing
    INSPECT = "inspect"  # the console and the audit: who did what, why a model is where it is
    CALL = "call"  # have a model work
    SCRAPE = "scrape"  # read metrics
    OPERATE = "operate"  # load, pin, pause: what the whole server feels
    ADMINISTER = "administer"  # keys and users


class Scope(StrEnum):
    """What a key is for. A key may have several; none includes another's calls."""

    CALL = "call"
    METRICS = "metrics"
    ADMIN = "admin"


class Role(StrEnum):
    """What a user of the console is. Each includes the one before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


BY_SCOPE: Mapping[Scope, frozenset[Action]] = {
    Scope.CALL: frozenset({Action.SEE, Action.CALL}),
    Scope.METRICS: frozenset({Action.SCRAPE}),
    Scope.ADMIN: frozenset({Action.SEE, Action.INSPECT, Action.OPERATE, Action.ADMINISTER}),
}
_LOOKING = frozenset({Action.SEE, Action.INSPECT, Action.SCRAPE})
BY_ROLE: Mapping[Role, frozenset[Action]] = {
    Role.VIEWER: _LOOKING,
    Role.OPERATOR: _LOOKING | {Action.CALL, Action.OPERATE},
    Role.ADMIN: frozenset(Action),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a key may ask for. None is no limit."""

    rate: float | None = None
    """Requests a second, over time."""
    burst: int = 1
    """So many of them at once."""
    concurrency: int | None = None
    """Requests in flight at once."""


@dataclass(frozen=True, slots=True)
class Principal:
    """One row of the table without its secret."""

    id: str
    """`key:` and the public part of a key, or `user:` and a name; what requests and audit rows carry."""
    kind: Kind
    name: str
    actions: frozenset[Action]
    scopes: tuple[Scope, ...] = ()
    role: Role | None = None
    service_class: ServiceClass | None = None
    """Of requests that name none. None: the model's own default."""
    models: tuple[str, ...] = ()
    """Globs over model ids; none allows all."""
    limits: Limits = field(default_factory=Limits)
    created: float = 0.0
    """Seconds since the epoch, as the two below."""
    last_used: float | None = None
    revoked: float | None = None


LOCAL = Principal("local", Kind.LOCAL, "local", frozenset(Action))
"""Everybody, on a server that has neither keys nor users and listens to its own machine only."""


def allowed(principal: Principal | None, action: Action) -> bool:
    return principal is not None and principal.revoked is None and action in principal.actions


def may_call(principal: Principal, model: str) -> bool:
    """Whether the principal may call the model of this id. Case counts, as in the catalogue."""
    return not principal.models or any(fnmatchcase(model, glob) for glob in principal.models)


_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@/-]{0,63}")
_USER_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


def key(public: str, name: str, scopes: Iterable[Scope], created: float, **fields: object) -> Principal:
    """A new API key. Raises ValueError for a name that could not stand in a log line or a metric."""
    if not _KEY_NAME.fullmatch(name):
        raise ValueError(
            "a key's name has 1 to 64 letters, digits, spaces or . _ @ / -, the first a letter or digit"
        )
    chosen = tuple(scope for scope in Scope if scope in set(scopes))
    if not chosen:
        raise ValueError(f"a key needs a scope: {', '.join(Scope)}")
    actions = frozenset[Action]().union(*(BY_SCOPE[scope] for scope in chosen))
    return Principal(f"key:{public}", Kind.KEY, name, actions, chosen, created=created, **fields)  # type: ignore[arg-type]


def user(name: str, role: Role, created: float) -> Principal:
    """A new user of the console. Raises ValueError for a name that could be taken for another."""
    if not _USER_NAME.fullmatch(name):
        raise ValueError(
            "a user's name has 1 to 64 small letters, digits or . _ @ -, the first a letter or digit"
        )
    return Principal(f"user:{name}", Kind.USER, name, BY_ROLE[role], role=role, created=created)
