"""What the engine stands on, made from the settings: devices, sources, threads, databases, rules."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from filelock import BaseFileLock, FileLock, Timeout
from sqlite_utils import Database

from engine.actors import recorder, state_store
from engine.adapters.family import Family, family
from engine.adapters.lora.family import with_adapters
from engine.adapters.quick.family import quick
from engine.backends.environment import on_this_machine
from engine.catalog import Catalog, ModelSpec
from engine.config import Settings, SettingsError
from engine.devices import host
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
    ready: Callable[[ModelSpec], bool] = lambda spec: True
    """Whether `locate` answers at once: nothing is fetched or converted for it."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch, for what happens at a time of day."""


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
        max_model_cost=settings.max_model_cost,
        max_key_jobs=settings.max_key_jobs,
        window_share=settings.window_share,
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


def host_memory(settings: Settings) -> int:
    """Bytes for weights that had to leave a card."""
    if settings.host_memory is not None:
        return settings.host_memory
    return host.available_memory() // 4


def wrong_pins(settings: Settings, catalog: Catalog) -> Iterator[str]:
    """A complaint for each pin, and each model of a TEI route, that names nothing, with the nearest id."""
    roots = [(key, getattr(settings, key)) for key in ("tei_embed", "tei_rerank", "tei_predict")]
    for key, name in [*(("pins", pin) for pin in settings.pins), *roots]:
        try:
            if name:
                catalog.resolve(catalog.adapted(name.partition("@")[0])[0])
        except (UnknownModel, InvalidInput) as error:
            yield f"{settings.origin(key)}: {key}: {error}"


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

    Raises SettingsError for pins that the catalogue lacks, more memory than there is, a `state_dir`
    that another server uses, and a database that is damaged.
    """
    if wrong := list(wrong_pins(settings, catalog)):
        raise SettingsError(wrong)
    devices = await open_devices(settings)
    lock = only_one(settings)
    sources = Sources.of(settings)
    try:
        _not_emptied(settings.state_dir)
        state = await to_thread.run_sync(_opened, settings.state_dir / "state.db", "full", state_store.check)
        traffic = None
        if settings.recording:
            update = recorder.migrations.apply
            path = settings.state_dir / "traffic.db"
            traffic = await to_thread.run_sync(_opened, path, "normal", update)
    except SettingsError:
        lock.release()
        raise

    def locate(spec: ModelSpec) -> Path:
        return sources.locate(spec, among=catalog)

    return Parts(
        devices=tuple(devices),
        locate=locate,
        family=lambda name: with_adapters(quick(on_this_machine(family(name), settings)), locate),
        opening=Threads(4),
        preparing=Threads(settings.preparation_threads),
        state=state,
        traffic=traffic,
        lock=lock,
        ready=sources.ready,
    )


def _not_emptied(folder: Path) -> None:
    """A server that had keys must not open itself because its file lost its content. Raises SettingsError."""
    path = folder / "state.db"
    if (folder / "traffic.db").exists() and path.exists() and not path.stat().st_size:
        said = f"{path} is empty, though a server has run here: its keys, pins and audit are gone"
        raise SettingsError([f"state_dir: {said}. Put a copy back, or remove the file to start anew."])


def _opened(path: Path, synchronous: str, check: Callable[[Database], object]) -> Database:
    """Raises SettingsError that says which file and what to do, for one that cannot be used."""
    db = None
    try:
        db = state_store.open_database(path, synchronous)
        check(db)
    except sqlite3.Error as error:
        if db is not None:
            db.close()
        said = f"{path} cannot be used: {error}. Move it away with its -wal and -shm files; a new one is made"
        raise SettingsError([f"state_dir: {said}, without what was kept in it."]) from None
    return db
