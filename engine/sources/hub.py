"""Model directories from the Hugging Face hub, its cache on this machine, and ModelScope.

Only files that cannot run code are asked for: weights are safetensors, never pickles.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.sources.files import NotHere

PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "artifact.metadata"]


class Repository(Protocol):
    """A model's repository on a hub; `revision` None is its main branch."""

    def cached(self, revision: str | None) -> Path:
        """The snapshot on this machine, when it is whole. No network. Raises NotHere."""
        ...

    def fetched(self, revision: str | None) -> Path:
        """The snapshot, downloaded as far as it is not here yet. Raises NotHere."""
        ...


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """`endpoint` and `token` None: as the library's own settings have them."""

    name: str
    endpoint: str | None = None
    token: str | None = None

    def cached(self, revision: str | None) -> Path:
        return self._snapshot(revision, local_files_only=True)

    def fetched(self, revision: str | None) -> Path:
        return self._snapshot(revision, local_files_only=False)

    def _snapshot(self, revision: str | None, **options: Any) -> Path:
        try:
            import httpx
            from huggingface_hub import snapshot_download
            from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
        except ImportError:
            raise NotHere("huggingface_hub is not installed; it comes with serai itself") from None
        try:
            folder = snapshot_download(
                self.name,
                revision=revision,
                allow_patterns=PATTERNS,
                endpoint=self.endpoint,
                token=self.token,
                **options,
            )
        except LocalEntryNotFoundError as error:
            asked = f"asking the hub failed: {_first_line(error.__cause__)}" if error.__cause__ else None
            raise NotHere(asked or "not in the hub's cache") from None
        except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
            raise NotHere(_first_line(error)) from None
        return _whole(Path(folder))


@dataclass(frozen=True, slots=True)
class ModelScope:
    name: str

    def cached(self, revision: str | None) -> Path:
        return self._snapshot(revision, local_files_only=True)

    def fetched(self, revision: str | None) -> Path:
        return self._snapshot(revision, local_files_only=False)

    def _snapshot(self, revision: str | None, **options: Any) -> Path:
        try:
            from modelscope import snapshot_download  # type: ignore[import-not-found]
            from modelscope.hub.errors import HubError  # type: ignore[import-not-found]
        except ImportError:
            raise NotHere("modelscope is not installed: pip install modelscope") from None
        try:
            folder = snapshot_download(self.name, revision=revision, allow_patterns=PATTERNS, **options)
        except (HubError, OSError, ValueError) as error:
            raise NotHere(_first_line(error)) from None
        return _whole(Path(folder))


def _whole(folder: Path) -> Path:
    """`folder`, if it has weights and every shard that its indexes name. Raises NotHere."""
    if not any(folder.rglob("*.safetensors")):
        raise NotHere(f"there are no safetensors in {folder}")
    for index in folder.rglob("*.safetensors.index.json"):
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
        missing = sorted(shard for shard in shards if not (index.parent / shard).is_file())
        if missing:
            raise NotHere(f"{missing[0]} is missing from {folder}")
    return folder


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
