"""A small engine whose traffic is on disk: simulated models, real clock, real databases."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
from sqlite_utils import Database

from engine.actors.state_store import open_database
from engine.adapters import simulated
from engine.config import Settings
from engine.devices.simulated import Simulated
from engine.engine import Engine
from engine.offload import Inline
from engine.parts import Parts
from engine.running import open_engine
from tests.simulation import MIB, catalog, model

QUICK = {
    "load_seconds": 0.01,
    "seconds_per_batch": 0.001,
    "seconds_per_cost": 0.00001,
    "weights_bytes": 100 * MIB,
}

HEADER = {"serai_recording": 1, "name": "x", "started_at": 1e9, "seconds": 2.0}
ASKED = {"is": "request", "at": 0.5, "model": "a", "costs": "3", "total_seconds": 0.1}


def written(path: Path, *lines: dict, cut: int = 0) -> Path:
    """A file of these lines, without its last `cut` bytes."""
    whole = gzip.compress(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    path.write_bytes(whole[: len(whole) - cut])
    return path


def end(**rows: int) -> dict:
    return {"is": "end", "rows": rows}


@asynccontextmanager
async def recorded_engine(
    folder: Path, *, traffic: Database | None = None, **settings: object
) -> AsyncIterator[Engine]:
    """Models a and b, and g that writes. `traffic`: a database that the test has its hand on."""
    parts = Parts(
        devices=(Simulated("simulated:a", slots=1, memory=1000 * MIB),),
        locate=lambda spec: Path("/"),
        family=lambda name: simulated.FAMILY,
        opening=Inline(),
        preparing=Inline(),
        state=open_database(folder / "state.db", "full"),
        traffic=traffic or open_database(folder / "traffic.db", "normal"),
    )
    models = catalog(
        model("a", options=QUICK),
        model("b", options=QUICK),
        model("g", ("generate",), outputs=(), dims={}, options=QUICK),
    )
    chosen = Settings.model_validate({"devices": "simulated:a", "headroom": 0.0} | settings)
    async with open_engine(chosen, models, parts) as engine:
        yield engine
