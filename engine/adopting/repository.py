"""The papers of a model's repository: its small files, of the hub's cache or the hub itself. No weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engine.errors import InvalidInput, WeightsUnavailable
from engine.yaml_text import YamlError
from engine.yaml_text import read as read_yaml

PAPERS = ["*.json", "README.md", "artifact.metadata"]
"""What is fetched: neither weights nor code. Tokenizers come with it, and would be needed anyway."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What lies in a snapshot, by its path inside it."""

    name: str
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    modules: tuple[tuple[str, str], ...] = ()
    """Of modules.json: the last part of each type, and its folder."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """What stands between the lines of dashes at the head of README.md."""
    pickles: bool = False
    """Whether its weights are known to be torch checkpoints, and no safetensors."""

    @property
    def config(self) -> Mapping[str, Any]:
        return self.files.get("config.json", {})

    def of(self, path: str) -> Mapping[str, Any]:
        return self.files.get(path, {})


def snapshot(name: str, online: bool, endpoint: str | None, token: str | None) -> Path:
    """The repository's folder with its papers, of the cache where it is there. Blocks.

    Raises WeightsUnavailable when it cannot be had, InvalidInput for what is no name of one.
    """
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                name,
                allow_patterns=PAPERS,
                endpoint=endpoint,
                token=token,
                local_files_only=not online,
            )
        )
    except HFValidationError as error:
        raise InvalidInput(f"{name!r} is no name of a repository: {error}") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, httpx.HTTPError, OSError) as error:
        why = str(error).strip().splitlines()[0] if online else "this machine's cache has no such repository"
        advice = "" if online else " `--online` lets the hub be asked."
        raise WeightsUnavailable(f"Nothing is known of {name}: {why}.{advice}") from None


def held(name: str, folder: Path, online: bool, endpoint: str | None, token: str | None) -> list[str]:
    """Names of the repository's files: of the hub where it may be asked and answers, else what lies here."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if online:
        try:
            return HfApi(endpoint=endpoint, token=token).list_repo_files(name)
        except (HfHubHTTPError, httpx.HTTPError, OSError):
            pass  # a mirror need not know this route, and its papers are here
    return [str(path.relative_to(folder)) for path in folder.rglob("*")]


def read(name: str, folder: Path, names: Sequence[str] = ()) -> Repository:
    """What a snapshot says; `names` are those of all its files. Raises InvalidInput for papers that cannot be
    read."""
    paths = [*folder.glob("*.json"), *folder.glob("*/config.json"), folder / "artifact.metadata"]
    files = {str(path.relative_to(folder)): _json(path) for path in paths if path.is_file()}
    modules = files.pop("modules.json", None) or []
    return Repository(
        name,
        {path: held for path, held in files.items() if isinstance(held, dict)},
        tuple((str(m["type"]).rpartition(".")[2], str(m["path"])) for m in modules if "type" in m),
        _card(folder / "README.md"),
        _only_pickles(names),
    )


def _only_pickles(names: Sequence[str]) -> bool:
    kinds = {Path(name).suffix for name in names}
    return ".safetensors" not in kinds and bool(kinds & {".bin", ".pt", ".pth"})


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidInput(f"{path.name} of the repository is no JSON: {error}") from None


def _card(path: Path) -> Mapping[str, Any]:
    """Empty where there is none, or none that can be read: a card is for people."""
    if not path.is_file():
        return {}
    head, *parts = path.read_text("utf-8", "replace").split("---\n", 2)
    if head.strip() or len(parts) < 2:
        return {}
    try:
        held = read_yaml(parts[0])[1]
    except (YamlError, yaml.YAMLError):
        return {}
    return held if isinstance(held, dict) else {}
