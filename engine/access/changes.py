"""What may be done to the table of principals, and what is known of it afterwards: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.access.principals import Kind, Principal, Role


@dataclass(frozen=True, slots=True)
class Add:
    """A key or a user that is new, or whose name was free again. `secret` is what is kept of its secret."""

    principal: Principal
    secret: str

    action = "create"

    @property
    def target(self) -> str:
        return self.principal.id


@dataclass(frozen=True, slots=True)
class Revoke:
    """It stops at once, and for good."""

    target: str

    action = "revoke"


@dataclass(frozen=True, slots=True)
class NewRole:
    target: str
    role: Role

    action = "role"


@dataclass(frozen=True, slots=True)
class NewPassword:
    """Every session of the user ends with it."""

    target: str
    secret: str

    action = "password"


Change = Add | Revoke | NewRole | NewPassword


@dataclass(frozen=True, slots=True)
class Known:
    """The whole table as it is on disk. A larger `generation` is newer."""

    generation: int = 0
    principals: Mapping[str, Principal] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    ended: frozenset[str] = frozenset()
    """Sessions that were left before their time."""
    cookie_key: bytes = field(default=b"", repr=False)
    """Signs sessions. They outlast a restart because it does."""

    @property
    def closed(self) -> bool:
        """Whether there ever was a key or a user: revoking the last one opens nothing."""
        return bool(self.principals)

    @property
    def has_users(self) -> bool:
        return any(p.kind is Kind.USER and p.revoked is None for p in self.principals.values())
