"""An engine of simulated models in virtual time: the unchanged actors, no threads, no clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from engine import catalog as catalogues
from engine.adapters import simulated
from engine.adapters.family import Family
from engine.catalog import Catalog, ModelSpec
from engine.config import Settings
from engine.devices.device import Device
from engine.devices.simulated import Simulated
from engine.engine import Engine
from engine.offload import Inline, Offload
from engine.parts import Parts
from engine.requests import EncodeOptions, GenerateOptions, Item, Request, Task
from engine.running import open_engine

R = TypeVar("R")

MIB = 2**20


def model(name: str, tasks: tuple[str, ...] = ("encode",), **fields: object) -> ModelSpec:
    """A simulated entry; `options` are `engine.adapters.simulated.Declared`'s fields."""
    return ModelSpec.model_validate(
        {
            "id": name,
            "family": "simulated",
            "tasks": tasks,
            "outputs": ["dense"],
            "dims": {"dense": 8},
            "devices": ["simulated"],
            "sources": [{"directory": "/"}],
        }
        | fields
    )


def device(
    name: str = "simulated:a", *, slots: int = 1, memory: int = 4096 * MIB, **options: Any
) -> Simulated:
    """One for `engine(devices=...)`; `options` are those of `Simulated`: how fast it is and how it fails."""
    return Simulated(name, slots=slots, memory=memory, **options)


def catalog(*models: ModelSpec) -> Catalog:
    return Catalog({m.id: m for m in models}, {})


def request(model: str, *texts: str, id: str = "q", **fields: object) -> Request:
    items = tuple(Item(text=text) for text in texts)
    return Request(id, Task.ENCODE, model, items, EncodeOptions(), **fields)  # type: ignore[arg-type]


def prompt(model: str, text: str, tokens: int, id: str = "g", **fields: object) -> Request:
    options = GenerateOptions(max_new_tokens=tokens)
    return Request(id, Task.GENERATE, model, (Item(text=text),), options, **fields)  # type: ignore[arg-type]


class Brittle:
    """An offload whose reading of catalogue files breaks in a way that nobody foresaw."""

    async def __call__(self, work: Callable[[], R], /) -> R:
        if getattr(work, "func", None) in (catalogues.load, catalogues.stamp):
            raise KeyError("maybe")
        return work()


@asynccontextmanager
async def engine(
    models: Catalog,
    *,
    memory: int = 4096 * MIB,
    slots: int = 1,
    family: Callable[[str], Family] = lambda name: simulated.FAMILY,
    devices: tuple[Device, ...] | None = None,
    opening: Offload | None = None,
    ready: Callable[[ModelSpec], bool] = lambda spec: True,
    **settings: object,
) -> AsyncIterator[Engine]:
    parts = Parts(
        devices=devices or (Simulated("simulated:a", slots=slots, memory=memory),),
        locate=lambda spec: Path("/"),
        family=family,
        opening=opening or Inline(),
        preparing=Inline(),
        ready=ready,
    )
    # A place that cannot be: what the machine's own home holds changes no test.
    nowhere = {"devices": "simulated:a", "headroom": 0.0, "state_dir": "/dev/null/state"}
    chosen = Settings.model_validate(nowhere | settings)
    async with open_engine(chosen, models, parts) as opened:
        yield opened
