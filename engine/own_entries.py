"""Catalogue entries that were added to a running server: a directory of its own, one file an entry.

What other files describe is theirs: it is neither replaced nor removed here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import textwrap
from collections.abc import Collection, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import ValidationError

from engine import catalog, complaints, yaml_text
from engine.catalog import Catalog, CatalogError, ModelSpec
from engine.errors import CatalogRejected, InvalidInput
from engine.yaml_text import YamlError

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNED = "\n# Written by Serai: it replaces and removes this file when an admin says so.\n"


@dataclass(frozen=True, slots=True)
class OwnEntry:
    spec: ModelSpec
    text: str
    """Of the file."""
    above: int
    """Lines of the file before the first that was given."""

    def complaint(self, said: str, path: Path) -> str:
        """A complaint about the file as one about what was given; one about another file as it is."""
        line, _, rest = said.removeprefix(f"{path}:").partition(":")
        if not said.startswith(f"{path}:") or not line.isdecimal():
            return said
        key = rest.removeprefix(" models.0.") if self.above else rest.strip()
        return f"{max(1, int(line) - self.above)}: {key}"


def parse(text: str) -> OwnEntry:
    """One entry: its keys, or a file with this one in it. Raises CatalogRejected; lines count from 1."""
    try:
        tree, held = yaml_text.read(text)
    except YamlError as error:
        raise rejected([f"{error.line or 1}: {error}"]) from None
    prefix, entry, body = _placed(text, held)
    try:
        spec = ModelSpec.model_validate(entry)
    except ValidationError as error:
        found = [
            f"{complaints.line(tree, (*prefix, *where))}: {'.'.join(map(str, where))}: {said}"
            for where, said in complaints.mistakes(error, ModelSpec)
        ]
        raise rejected(found) from None
    return OwnEntry(spec, body + SIGNED, 0 if prefix else 2)


def _placed(text: str, held: object) -> tuple[tuple[int | str, ...], object, str]:
    """Where in the text the entry is, what it holds, and a file's text with it. Raises CatalogRejected."""
    if not isinstance(held, dict) or not held:
        raise rejected(["1: an entry is keys and values: id, family, tasks, sources, and what else is known"])
    if "models" in held:
        models = held["models"]
        if len(held) > 1 or not isinstance(models, list) or len(models) != 1:
            raise rejected(["1: models: one entry at a time, and no aliases"])
        return ("models", 0), models[0], text.rstrip() + "\n"
    body = "models:\n-\n" + textwrap.indent(text.rstrip(), "  ") + "\n"
    with suppress(YamlError):
        if yaml_text.read(body)[1] == {"models": [held]}:
            return (), held, body
    raise rejected(["1: write the keys one below the other, without --- and without %"])


def rejected(found: Sequence[str]) -> CatalogRejected:
    said = f"Nothing was changed. {len(found)} complaints: " + "\n".join(found)
    return CatalogRejected(said, complaints=list(found))


def place(own: Path, model: str) -> Path:
    return own / f"{model.replace('/', '__')}.yaml"


def ours(own: Path, model: str) -> Path | None:
    """The file of an entry that was added here."""
    path = place(own, model)
    try:
        held = yaml_text.read(path.read_text("utf-8"))[1]
        return path if list(held) == ["models"] and [m["id"] for m in held["models"]] == [model] else None
    except (OSError, ValueError, TypeError, KeyError, YamlError):
        return None


def all_ours(own: Path, models: Collection[str]) -> frozenset[str]:
    """Those of the models whose entries were added here."""
    return frozenset(model for model in models if place(own, model).is_file() and ours(own, model))


def together(directories: Sequence[Path], own: Path) -> tuple[Path, ...]:
    """The catalogue's directories; the own one is last, from its first entry on."""
    others = tuple(each for each in directories if each != own)
    return (*others, own) if own.is_dir() else others


def check(served: Catalog, own: Path, entry: OwnEntry) -> Catalog:
    """The catalogue as it would be with the entry. Raises InvalidInput for what is another's,
    CatalogRejected with every complaint."""
    model, path = entry.spec.id, place(own, entry.spec.id)
    if model in served.aliases:
        raise InvalidInput(f"{model} is another name of {served.aliases[model]}; choose another id.")
    if ours(own, model) is None and (model in served.models or path.exists()):
        where = path if path.exists() else "another directory of the catalogue"
        raise InvalidInput(f"{model} is described in {where}, which is not this page's; change it there.")
    with _staged(own) as stage:
        (stage / path.name).write_text(entry.text, "utf-8")
        try:
            return _loaded(served, own, stage)
        except CatalogError as error:
            raise rejected([entry.complaint(said, path) for said in error.complaints]) from None


def check_without(served: Catalog, own: Path, model: str) -> Catalog:
    """The catalogue without an entry that was added here. Raises InvalidInput, CatalogRejected."""
    path = ours(own, model)
    if path is None:
        raise InvalidInput(f"{model} was not added here; take it out of the file that describes it.")
    with _staged(own) as stage:
        (stage / path.name).unlink()
        try:
            return _loaded(served, own, stage)
        except CatalogError as error:
            raise rejected(error.complaints) from None


def write(own: Path, entry: OwnEntry) -> bytes | None:
    """Whole or not at all. Returns what the file held before. Raises InvalidInput for another's."""
    own.mkdir(parents=True, exist_ok=True)
    path = place(own, entry.spec.id)
    before = path.read_bytes() if ours(own, entry.spec.id) else None
    with tempfile.NamedTemporaryFile(dir=own, suffix=".tmp", delete=False) as file:
        file.write(entry.text.encode())
        file.flush()
        os.fsync(file.fileno())
    try:
        if before is not None:
            os.replace(file.name, path)
        else:
            os.link(file.name, path)  # unlike a rename, it does not take the place of another's
    except FileExistsError:
        raise InvalidInput(f"{path} is there already, and holds something else.") from None
    finally:
        Path(file.name).unlink(missing_ok=True)
    return before


def put_back(own: Path, model: str, before: bytes | None) -> None:
    """As it was before a change that came to nothing."""
    if before is None:
        place(own, model).unlink(missing_ok=True)
    else:
        place(own, model).write_bytes(before)


@contextmanager
def _staged(own: Path) -> Iterator[Path]:
    """A copy of the directory, to be tried."""
    with tempfile.TemporaryDirectory() as folder:
        if own.is_dir():
            for path in own.glob("*.yaml"):
                shutil.copy2(path, folder)
        yield Path(folder)


def _loaded(served: Catalog, own: Path, stage: Path) -> Catalog:
    others = [each for each in served.directories if each != own]
    try:
        return catalog.load([*others, stage], served.families)
    except CatalogError as error:
        raise CatalogError([said.replace(str(stage), str(own)) for said in error.complaints]) from None


def written(spec: ModelSpec) -> str:
    """An entry as YAML, for a form that begins with it."""
    held = spec.model_dump(mode="json", exclude_unset=True)
    return yaml.safe_dump(held, sort_keys=False, allow_unicode=True, width=100)
