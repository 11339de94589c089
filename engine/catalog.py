"""The models this server knows: YAML files, checked whole before any of it is used.

Every complaint names file, line and key. A catalogue is a value: reloading makes a new one.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from engine import complaints, yaml_text
from engine.entry import Limits as Limits
from engine.entry import ModelId, Strict
from engine.entry import ModelSpec as ModelSpec
from engine.entry import Profile as Profile
from engine.entry import Source as Source
from engine.errors import InvalidInput, UnknownModel
from engine.yaml_text import YamlError

Stamp = tuple[tuple[str, int, int], ...]
"""Of each file its path, when it was written, and its size."""


class CatalogError(Exception):
    """The catalogue cannot be used as it is; each line names file, line, key and complaint."""

    def __init__(self, complaints: Sequence[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = list(complaints)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entries by id, and other names for them."""

    models: Mapping[str, ModelSpec]
    aliases: Mapping[str, str]
    directories: tuple[Path, ...] = ()
    """Whence it was read; none when it was made by hand."""
    families: frozenset[str] | None = None
    """Families that its entries were checked against."""
    stamp: Stamp = ()
    """Of its files, before they were read."""

    def __iter__(self) -> Iterator[ModelSpec]:
        return iter(self.models.values())

    def __len__(self) -> int:
        return len(self.models)

    def resolve(self, name: str) -> tuple[ModelSpec, str | None]:
        """The entry and profile that `id`, `id:profile` or an alias means.

        `org__model` is read as `org/model`, as the generate route spells it. Raises UnknownModel
        with the nearest id, InvalidInput for a profile that the entry lacks, an adapter's name included.
        """
        base, _, profile = name.partition(":")
        models, alias = self.models, self.aliases.get(base, "")
        spec = models.get(base) or models.get(alias) or models.get(base.replace("__", "/", 1))
        if spec is None:
            raise UnknownModel(self._nearest(base), model=base)
        if not profile or profile == "default":
            return spec, None
        if profile not in spec.profiles:
            raise InvalidInput(_no_such(spec, profile))
        return spec, profile

    def adapted(self, name: str) -> tuple[str, str | None]:
        """`name` without the adapter that it names behind a colon, and that adapter."""
        base, _, tail = name.partition(":")
        if not tail:
            return name, None
        spec, _ = self.resolve(base)
        return (base, tail) if tail in spec.loras else (name, None)

    def named(self, name: str) -> tuple[ModelSpec, str | None, str | None]:
        """The entry that `name` means, and the profile or adapter behind its colon. Raises as `resolve`."""
        base, adapter = self.adapted(name)
        spec, profile = self.resolve(base)
        return spec, profile, adapter

    def _nearest(self, name: str) -> str:
        names = [*self.models, *self.aliases]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        if not near:
            tails = {n.rsplit("/", 1)[-1]: n for n in names}
            near = [tails[t] for t in difflib.get_close_matches(name.rsplit("/", 1)[-1], tails, n=1)]
        hint = f" Did you mean {near[0]!r}?" if near else " GET /v1/models lists what there is."
        return f"The catalogue has no model {name[:200]!r}.{hint}"


class _File(Strict):
    models: tuple[ModelSpec, ...] = ()
    aliases: Mapping[ModelId, ModelId] = {}


@dataclass(frozen=True, slots=True)
class _Read:
    """What one file holds, and where in it."""

    path: Path
    tree: yaml.Node | None
    held: _File

    def at(self, *where: int | str) -> str:
        """How a complaint about this key begins."""
        return f"{self.path}:{complaints.line(self.tree, where)}: {'.'.join(map(str, where))}"


def load(directories: Sequence[Path], families: Collection[str] | None = None) -> Catalog:
    """Every `*.yaml` of these directories; a later directory's entry replaces an earlier one's, and an
    earlier alias of that name.

    Raises CatalogError with every complaint there is; one of them is a family that is none of
    `families`, where those are given.
    """
    seen = stamp(directories)
    gathered = _Gathered(families)
    for directory in directories:
        gathered.add(directory)
    wrong = [*gathered.wrong, *gathered.links()]
    if wrong:
        raise CatalogError(wrong)
    checked = None if families is None else frozenset(families)
    return Catalog(gathered.models, gathered.aliases, tuple(directories), checked, seen)


class _Gathered:
    """What the directories hold together, as far as they are read, and what is wrong with it."""

    def __init__(self, families: Collection[str] | None) -> None:
        self.models: dict[str, ModelSpec] = {}
        self.aliases: dict[str, str] = {}
        self.wrong: list[str] = []
        self._families = families
        self._places: dict[tuple[str, str], str] = {}
        """How a complaint about the alias of that name begins, or about where that entry degrades to."""

    def add(self, directory: Path) -> None:
        if not directory.is_dir():
            self.wrong.append(f"{directory}: no such directory")
            return
        found: dict[str, ModelSpec] = {}
        aliases: dict[str, str] = {}
        for read in [_read(path, self.wrong) for path in sorted(directory.glob("*.yaml"))]:
            self._take_entries(read, found)
            aliases |= read.held.aliases
            self._places |= {("alias", alias): read.at("aliases", alias) for alias in read.held.aliases}
        earlier = {alias: model for alias, model in self.aliases.items() if alias not in found}
        self.models |= found
        self.aliases = earlier | aliases

    def _take_entries(self, read: _Read, found: dict[str, ModelSpec]) -> None:
        for number, spec in enumerate(read.held.models):
            if spec.id in found:
                self.wrong.append(f"{read.at('models', number, 'id')}: {spec.id} is described twice")
            if self._families is not None and spec.family not in self._families:
                said = complaints.unknown("family", spec.family, self._families)
                self.wrong.append(f"{read.at('models', number, 'family')}: {said}")
            found[spec.id] = spec
            self._places["degrade", spec.id] = read.at("models", number, "degrade")

    def links(self) -> Iterator[str]:
        """What is wrong with where names lead."""
        for alias, model in self.aliases.items():
            if said := self._alias(alias, model):
                yield f"{self._places['alias', alias]}: {said}"
        for spec in self.models.values():
            if spec.degrade and (said := _leads_nowhere(spec.degrade, self.models) or self._circle(spec)):
                yield f"{self._places['degrade', spec.id]}: {said}"

    def _alias(self, alias: str, model: str) -> str | None:
        if alias in self.models:
            return f"there is an entry {alias}; give the alias another name"
        return _leads_nowhere(model, self.models)

    def _circle(self, spec: ModelSpec) -> str | None:
        """A way by `degrade` that comes back to the same weights, and so to the same queue."""
        way, to = [spec.unit()], spec.degrade
        while to and _leads_nowhere(to, self.models) is None:
            model, _, profile = to.partition(":")
            unit = self.models[model].unit(None if profile in ("", "default") else profile)
            if unit in way:
                back = unit == way[0]
                return f"{' -> '.join([*way, unit])}: this leads back to where it began" if back else None
            way.append(unit)
            to = self.models[model].degrade if model != spec.id else None
        return None


def stamp(directories: Sequence[Path]) -> Stamp:
    """Differs when a file of the catalogue has come, gone or been written since."""
    found = []
    for directory in directories:
        for path in sorted(directory.glob("*.yaml")):
            try:
                seen = path.stat()
            except OSError:
                continue  # gone since the listing
            found.append((str(path), seen.st_mtime_ns, seen.st_size))
    return tuple(found)


def _no_such(spec: ModelSpec, tail: str) -> str:
    """What is said of a name behind a colon that is no profile of the entry."""
    if tail in spec.loras:
        return f"{tail!r} is an adapter of {spec.id}; here a model is named, or a profile of one: {spec.id}."
    profiles = ", ".join(sorted(spec.profiles)) or "none"
    if not spec.loras:
        return f"{spec.id} has no profile {tail[:200]!r}; it has: {profiles}"
    adapters = ", ".join(sorted(spec.loras))
    return f"{spec.id} has no profile or adapter {tail[:200]!r}; profiles: {profiles}; adapters: {adapters}"


def _leads_nowhere(to: str, models: Mapping[str, ModelSpec]) -> str | None:
    """What is wrong with a link to a model or to a profile of one."""
    model, _, profile = to.partition(":")
    if model not in models:
        return complaints.unknown("model", model, list(models))
    if profile and profile not in ("default", *models[model].profiles):
        return complaints.unknown(f"profile of {model}", profile, ["default", *models[model].profiles])
    return None


def _read(path: Path, wrong: list[str]) -> _Read:
    tree: yaml.Node | None = None
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            raise ValueError("this is no file; an entry of the catalogue is one")
        tree, held = yaml_text.read(path.read_text("utf-8"))
        return _Read(path, tree, _File.model_validate(held or {}))
    except YamlError as error:
        line = f"{error.line}: " if error.line else ""
        wrong.append(f"{path}:{line or ' '}{error}")
    except ValidationError as error:
        read = _Read(path, tree, _File())
        wrong += [f"{read.at(*where)}: {said}" for where, said in complaints.mistakes(error, _File)]
    except (OSError, ValueError) as error:  # a file that is gone, or whose bytes are no text
        wrong.append(f"{path}: {error}")
    return _Read(path, tree, _File())
