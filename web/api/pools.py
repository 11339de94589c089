"""`/v1/pools`: leases on machines of a cluster. Here there is one machine, and every pool has it.

Clients that reserve before they ask work unchanged; a pool changes nothing about who is served.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from engine.access.principals import Kind
from engine.errors import QueueFull
from web import sending
from web.access.current import current
from web.errors import NotFound
from web.keys import ENGINE, INTAKE, POOLS
from web.wire.decoding import decode
from web.wire.forms import Form

LEASE = 1200.0
MOST = 1000
MOST_EACH = 50
"""Of one principal, where principals are told apart: no key may fill the table for the others."""
MOST_GPUS = 1_000_000

Profile = Annotated[str, Meta(max_length=100)]
Counts = Annotated[dict[Profile, Annotated[int, Meta(ge=0, le=MOST_GPUS)]], Meta(max_length=50)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class Spec(Struct):
    """What a client asks for; kept to be shown, and nothing else."""

    name: Name
    queue_pool: Annotated[str, Meta(max_length=200)] = "default"
    gpus: Counts = {}
    gpu_caps: Counts = {}
    bundle: Annotated[str, Meta(max_length=200)] | None = None
    minimum_worker_count: Annotated[int, Meta(ge=0, le=MOST_GPUS)] = 0
    pinned_models: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=100)] = []


@dataclass(slots=True)
class Pool:
    spec: Spec
    created_at: float
    renewed_at: float
    until: float
    owner: str = ""


class Pools:
    """Kept in memory until their lease ends. `now` is the engine's clock."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}

    def create(self, spec: Spec, owner: str, now: float) -> Pool:
        """A pool of a name that is there already takes the new wishes. Raises QueueFull at too many."""
        self._forget(now)
        spec.name = spec.name.lower()
        old = self._pools.get(spec.name)
        if old is None and len(self._pools) >= MOST:
            raise QueueFull(f"There are {MOST} pools already; delete one.").after(60.0)
        own = sum(pool.owner == owner for pool in self._pools.values())
        if old is None and owner and own >= MOST_EACH:
            raise QueueFull(f"You have {MOST_EACH} pools already; delete one.").after(60.0)
        at = time.time()
        kept = (old.created_at, old.owner) if old else (at, owner)
        pool = Pool(spec, kept[0], at, now + LEASE, kept[1])
        self._pools[spec.name] = pool
        return pool

    def all(self, now: float) -> list[Pool]:
        self._forget(now)
        return list(self._pools.values())

    def find(self, name: str, now: float) -> Pool:
        """Raises NotFound."""
        self._forget(now)
        if pool := self._pools.get(name.lower()):
            return pool
        raise NotFound(f"There is no pool {name[:100]!r}, or its lease has ended.")

    def renew(self, name: str, now: float) -> Pool:
        pool = self.find(name, now)
        pool.renewed_at, pool.until = time.time(), now + LEASE
        return pool

    def delete(self, name: str, now: float) -> None:
        del self._pools[self.find(name, now).spec.name]

    def _forget(self, now: float) -> None:
        for name in [name for name, pool in self._pools.items() if pool.until <= now]:
            del self._pools[name]


async def create(request: web.Request) -> web.Response:
    spec = decode(await request.app[INTAKE].body(request), Form.JSON, Spec)
    principal = current(request)
    owner = "" if principal is None or principal.kind is Kind.LOCAL else principal.id
    return sending.small(_shown(request, request.app[POOLS].create(spec, owner, _now(request))))


async def list_pools(request: web.Request) -> web.Response:
    pools = request.app[POOLS].all(_now(request))
    listed = [{"name": p.spec.name, "state": "active", "gpus": p.spec.gpus, "worker_count": 1} for p in pools]
    return sending.small({"pools": listed})


async def show(request: web.Request) -> web.Response:
    return sending.small(_shown(request, request.app[POOLS].find(_name(request), _now(request))))


async def renew(request: web.Request) -> web.Response:
    return sending.small(_shown(request, request.app[POOLS].renew(_name(request), _now(request))))


async def delete(request: web.Request) -> web.Response:
    request.app[POOLS].delete(_name(request), _now(request))
    return sending.small({"name": _name(request).lower(), "deleted": True})


def _name(request: web.Request) -> str:
    return request.match_info["pool"]


def _now(request: web.Request) -> float:
    return request.app[ENGINE].now()


def _shown(request: web.Request, pool: Pool) -> dict[str, Any]:
    spec = {name: getattr(pool.spec, name) for name in Spec.__struct_fields__}
    kinds = [device.kind for device in request.app[ENGINE].view().devices]
    worker = {
        "name": "serai",
        "url": str(request.url.origin()),
        "gpu": kinds[0] if kinds else "",
        "bundle": "default",
    }
    status = {
        "state": "active",
        "assigned_workers": [worker],
        "created_at": pool.created_at,
        "last_renewed": pool.renewed_at,
    }
    return {"name": pool.spec.name, "spec": spec, "status": status}
