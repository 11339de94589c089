"""What the engine stands on, made from the settings: devices, sources, threads, databases, rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from filelock import BaseFileLock, FileLock, Timeout
from sqlite_utils import Database

from engine.actors import state_store
from engine.adapters.family import Family, family
from engine.catalog import Catalog, ModelSpec
from engine.config import Settings, SettingsError
from engine.devices.available import open_devices
from engine.devices.device import Device
from engine.errors import InvalidInput, UnknownModel
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
    lock: BaseFileLock | None = None
    """Held as long as the engine lives: its databases have one writer."""


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


def wrong_pins(settings: Settings, catalog: Catalog) -> Iterator[str]:
    """A complaint for each pin that names nothing, with the nearest id."""
    for name in settings.pins:
        try:
            catalog.resolve(name.partition("@")[0])
        except (UnknownModel, InvalidInput) as error:
            yield f"{settings.origin('pins')}: pins: {error}"


def only_one(settings: Settings) -> BaseFileLock:
    """The lock of `state_dir`, taken. Raises SettingsError that names the server which has it.

    The system lets go of it when the process ends, however it ends.
    """
    folder = settings.state_dir
    holder = folder / "server.pid"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "server.lock", thread_local=False)
        lock.acquire(timeout=0)
        holder.write_text(str(os.getpid()))
    except Timeout:
        other = f"process {holder.read_text()}" if holder.exists() else "a process that is starting"
        said = f"another server, {other}, uses {folder}; give this one a directory of its own"
        raise SettingsError([f"{settings.origin('state_dir')}: state_dir: {said}"]) from None
    except OSError as error:
        said = f"{folder} cannot be written: {error.strerror}"
        raise SettingsError([f"{settings.origin('state_dir')}: state_dir: {said}"]) from None
    return lock


async def real_parts(settings: Settings, catalog: Catalog) -> Parts:
    """Devices, sources and databases as the settings name them.

    Raises SettingsError for pins that the catalogue lacks, more memory than there is, and a
    `state_dir` that another server uses.
    """
    if wrong := list(wrong_pins(settings, catalog)):
        raise SettingsError(wrong)
    devices = await open_devices(settings)
    lock = only_one(settings)
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
        devices=tuple(devices),
        locate=lambda spec: sources.locate(spec, among=catalog),
        family=family,
        opening=Threads(4),
        preparing=Threads(settings.preparation_threads),
        state=state,
        traffic=traffic,
        lock=lock,
    )
