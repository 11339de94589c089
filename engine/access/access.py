"""Who may come in, in memory: what the disk has, never ahead of it."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import anyio

from engine.access import credentials
from engine.access.changes import Change, Known
from engine.access.limits import Gate
from engine.access.principals import LOCAL, Kind, Principal, may_call
from engine.access.usage import Usage
from engine.actors.actor import Mailbox
from engine.actors.state_messages import ChangeAccess, EndSession, KeepUses, ReadAccess, StateMessage
from engine.config import Settings
from engine.errors import EngineError, Forbidden, RateLimited, Unauthorized

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
"""Seconds between looks for what the command line has changed."""
KEEP_EVERY = 60.0
"""Seconds between writes of when each was last seen."""


class Store(Protocol):
    """Where the table lives. An answer means that it is on disk."""

    async def change(self, wanted: Change, who: str, reason: str) -> Known: ...

    async def newer(self, than: int) -> Known | None: ...

    async def end_session(self, session: str, until: float) -> Known: ...

    async def keep_uses(self, uses: Mapping[str, float]) -> None: ...


class StateBox:
    """The table in `state.db`, through its one writer."""

    def __init__(self, state: Mailbox[StateMessage]) -> None:
        self._state = state

    async def change(self, wanted: Change, who: str, reason: str) -> Known:
        return await self._state.ask(ChangeAccess, change=wanted, who=who, reason=reason)

    async def newer(self, than: int) -> Known | None:
        return await self._state.ask(ReadAccess, generation=than)

    async def end_session(self, session: str, until: float) -> Known:
        return await self._state.ask(EndSession, session=session, until=until)

    async def keep_uses(self, uses: Mapping[str, float]) -> None:
        await self._state.ask(KeepUses, uses=uses)


class Access:
    """The only owner of the table in memory, of what is in flight, and of what was used since the start."""

    def __init__(self, settings: Settings, store: Store | None = None, known: Known | None = None) -> None:
        self._settings = settings
        self._store = store
        self._known = known or Known(cookie_key=secrets.token_bytes(32))
        self._gate = Gate()
        self._seen: dict[str, float] = {}
        self.usage = Usage()
        self.invitation = self._invite()
        """What the first user is made with; None when there is one, or when anybody here may come in."""

    @property
    def principals(self) -> Mapping[str, Principal]:
        return self._known.principals

    @property
    def has_users(self) -> bool:
        return self._known.has_users

    @property
    def cookie_key(self) -> bytes:
        return self._known.cookie_key

    @property
    def open(self) -> bool:
        """Whether whoever reaches this server may do everything.

        So it is on a loopback address while there never was a key or a user, and where the operator
        turned this off; there, too, only on a loopback address.
        """
        if not is_loopback(self._settings.host):
            return False
        if self._settings.auth == "off":
            return True
        return self._settings.auth == "auto" and not self._known.closed

    def by_key(self, key: str) -> Principal:
        """Whose key it is. Raises Unauthorized, which does not tell why it is none."""
        public = credentials.public_part(key)
        if public is None:
            raise Unauthorized("This is no API key of Serai: it is cut, mistyped, or another server's.")
        found = self._known.principals.get(f"key:{public}")
        kept = self._known.secrets.get(f"key:{public}", credentials.key_hash(""))
        right = credentials.same(credentials.key_hash(key), kept)
        if not right or found is None:
            raise Unauthorized("This server does not know this API key.")
        if found.revoked is not None:
            raise Unauthorized("This API key was revoked.")
        return found

    def user(self, name: str) -> Principal | None:
        """The user of this name, unless removed."""
        found = self._known.principals.get(f"user:{name}")
        return found if found and found.revoked is None else None

    def secret(self, principal: str) -> str | None:
        """What is kept of a secret; a session stands only as long as it."""
        return self._known.secrets.get(principal)

    def ended(self, session: str) -> bool:
        return session in self._known.ended

    def stands(self, principal: Principal) -> bool:
        """Whether it may still do what it could: asked again and again by what lasts long."""
        if principal is LOCAL:
            return self.open
        now = self._known.principals.get(principal.id)
        return now is not None and now.revoked is None and now.actions == principal.actions

    def enter(self, principal: Principal, now: float) -> Callable[[], None]:
        """A call begins; what comes back ends it. Raises RateLimited. `now` is the engine's clock."""
        wait = self._gate.enter(principal, now)
        if wait:
            limits = principal.limits
            said = [f"{limits.rate:g} requests a second, {limits.burst} at once"] if limits.rate else []
            said += [f"{limits.concurrency} in flight"] if limits.concurrency is not None else []
            raise RateLimited(f"{principal.name} may ask for {' and '.join(said)}; try again later.").after(
                wait
            )
        self.seen(principal)
        return lambda: self._gate.leave(principal)

    def seen(self, principal: Principal) -> None:
        if principal.kind is not Kind.LOCAL:
            self._seen[principal.id] = time.time()

    def last_used(self, principal: Principal) -> float | None:
        """Seconds since the epoch."""
        return self._seen.get(principal.id, principal.last_used)

    def check_model(self, principal: Principal, model: str) -> None:
        """Raises Forbidden for a model that the principal's key is not for."""
        if not may_call(principal, model):
            allowed = ", ".join(principal.models)
            raise Forbidden(f"The key {principal.name!r} is not for {model}; it is for {allowed}.")

    async def change(self, wanted: Change, who: str, reason: str = "") -> None:
        """Done, and on disk, when this returns; it counts from then on. Raises EngineError."""
        self._take(await self._writable().change(wanted, who, reason))

    async def end_session(self, session: str, until: float) -> None:
        self._take(await self._writable().end_session(session, until))

    async def watch(self) -> None:
        """Take in what the command line changes, and keep when each was last seen. Runs for ever."""
        keep_at, blind = anyio.current_time() + KEEP_EVERY, False
        while True:
            await anyio.sleep(LOOK_EVERY)
            try:
                if newer := await self._writable().newer(self._known.generation):
                    self._take(newer)
                if anyio.current_time() >= keep_at:
                    keep_at += KEEP_EVERY
                    await self.keep()
                blind = False
            except EngineError as error:
                if not blind:  # a disk that is gone stays gone for a while, and once said is enough
                    log.error("changes of keys and users are not seen: %s", error)
                blind = True

    async def keep(self) -> None:
        """Write when each was last seen."""
        seen, self._seen = self._seen, {}
        if seen:
            await self._writable().keep_uses(seen)

    def exposition(self) -> bytes:
        """Prometheus' text: what each has used."""
        running = {p.id: self._gate.in_flight(p) for p in self.principals.values()}
        return self.usage.exposition(self.principals, running)

    def _take(self, known: Known) -> None:
        """Answers may come out of turn; an older one is no news."""
        if known.generation >= self._known.generation:
            self._known = known
            if known.has_users:
                self.invitation = None

    def _writable(self) -> Store:
        if self._store is None:
            raise EngineError("This server keeps no state, so it has neither keys nor users.")
        return self._store

    def _invite(self) -> str | None:
        if is_loopback(self._settings.host) or self._known.has_users or self._store is None:
            return None
        return secrets.token_urlsafe(18)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there. A name counts when it is `localhost`."""
    name = host.strip("[]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
