"""What the engine stands on, made from the settings: devices, sources, threads, databases, rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from sqlite_utils import Database

from engine.actors import state_store
from engine.adapters.family import Family, family
from engine.catalog import Catalog, ModelSpec
from engine.config import Settings
from engine.devices.available import open_devices
from engine.devices.device import Device
from engine.memory.rules import EvictionPolicy, MemoryRules
from engine.offload import Offload, Threads
from engine.requests import ServiceClass
from engine.scheduling.rules import SchedulingRules
from engine.sources.locate import Sources


@dataclass(frozen=True, slots=True)
class Parts:
    """What the engine stands on. In earnest `real_parts`; tests and the planner bring their own."""

    devices: tuple[Device, ...]
    locate: Callable[[ModelSpec], Path]
    family: Callable[[str], Family]
    opening: Offload
    preparing: Offload
    state: Database | None = None
    traffic: Database | None = None


def scheduling_rules(settings: Settings) -> SchedulingRules:
    return SchedulingRules(
        targets={
            ServiceClass.INTERACTIVE: settings.interactive_target,
            ServiceClass.STANDARD: settings.standard_target,
            ServiceClass.BACKGROUND: settings.background_target,
        },
        interactive_window=settings.interactive_window,
        quantum=settings.quantum,
        floors={
            ServiceClass.STANDARD: settings.background_floor,
            ServiceClass.BACKGROUND: settings.background_floor,
        },
        max_waiting_jobs=settings.max_waiting_jobs,
        max_model_jobs=settings.max_model_jobs,
    )


def memory_rules(settings: Settings) -> MemoryRules:
    return MemoryRules(
        policy=EvictionPolicy(settings.eviction),
        load_cooldown=settings.load_cooldown,
        min_residency=settings.min_residency,
        max_cold_wait=settings.max_cold_wait,
        loads_at_once=settings.loads_at_once,
        idle_unload=settings.idle_unload,
    )


async def real_parts(settings: Settings, catalog: Catalog) -> Parts:
    """Devices, sources and databases as the settings name them."""
    sources = Sources(
        settings.store,
        settings.online,
        settings.hub_endpoint,
        settings.hub_token,
        frozenset(settings.extras),
    )
    state = await to_thread.run_sync(state_store.open_database, settings.state_dir / "state.db", "full")
    traffic = None
    if settings.recording:
        traffic = await to_thread.run_sync(
            state_store.open_database, settings.state_dir / "traffic.db", "normal"
        )
    return Parts(
        devices=tuple(await open_devices(settings)),
        locate=lambda spec: sources.locate(spec, among=catalog),
        family=family,
        opening=Threads(4),
        preparing=Threads(settings.preparation_threads),
        state=state,
        traffic=traffic,
    )
