"""Model directories from the Hugging Face hub, its cache on this machine, and ModelScope.

Only files that cannot run code are asked for: weights are safetensors. Torch checkpoints, which are pickles,
are asked for in their place where an entry's source names the conversion that reads tensors alone of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.sources.companions import companions
from engine.sources.files import NotHere

PAPERS = ["*.json", "*.txt", "*.model", "*.jinja", "artifact.metadata"]
SAFE = ["*.safetensors", *PAPERS]
CHECKPOINTS = ["*pytorch_model*.bin", "model.bin", "*model.pt", "*_linear.pt", *PAPERS]


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
    """`endpoint` and `token` None: as the library's own settings have them. `checkpoints`: those, and no
    safetensors."""

    name: str
    endpoint: str | None = None
    token: str | None = None
    checkpoints: bool = False

    def cached(self, revision: str | None) -> Path:
        return self._snapshot(revision, local_files_only=True)

    def fetched(self, revision: str | None) -> Path:
        return self._snapshot(revision, local_files_only=False)

    def _snapshot(self, revision: str | None, **options: Any) -> Path:
        patterns = CHECKPOINTS if self.checkpoints else SAFE
        folder = _whole(self._download(self.name, patterns, revision=revision, **options), self.checkpoints)
        for other in companions(folder):
            try:
                self._download(other, PAPERS, **options)
            except NotHere as why:
                raise NotHere(f"it has its tokenizer from {other}: {why}") from None
        return folder

    def _download(self, name: str, patterns: list[str], **options: Any) -> Path:
        try:
            import httpx
            from huggingface_hub import snapshot_download
            from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
        except ImportError:
            raise NotHere("huggingface_hub is not installed; it comes with serai itself") from None
        try:
            folder = snapshot_download(
                name, allow_patterns=patterns, endpoint=self.endpoint, token=self.token, **options
            )
        except LocalEntryNotFoundError as error:
            asked = f"asking the hub failed: {_first_line(error.__cause__)}" if error.__cause__ else None
            raise NotHere(asked or "not in the hub's cache") from None
        except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
            raise NotHere(_first_line(error)) from None
        return Path(folder)


@dataclass(frozen=True, slots=True)
class ModelScope:
    name: str
    checkpoints: bool = False

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
            patterns = CHECKPOINTS if self.checkpoints else SAFE
            folder = snapshot_download(self.name, revision=revision, allow_patterns=patterns, **options)
        except (HubError, OSError, ValueError) as error:
            raise NotHere(_first_line(error)) from None
        return _whole(Path(folder), self.checkpoints)


def _whole(folder: Path, checkpoints: bool) -> Path:
    """`folder`, if it has weights and every shard that its indexes name. Raises NotHere."""
    if checkpoints:
        found, what, indexes = [*folder.glob("*.bin"), *folder.glob("*.pt")], "torch checkpoints", "*.bin"
    else:
        found, what, indexes = [*folder.rglob("*.safetensors")], "safetensors", "*.safetensors"
    if not found:
        hint = "" if checkpoints else "; `convert: torch_checkpoint` in its source takes a torch checkpoint"
        raise NotHere(f"there are no {what} in {folder}{hint}")
    for index in folder.rglob(f"{indexes}.index.json"):
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
        missing = sorted(shard for shard in shards if not (index.parent / shard).is_file())
        if missing:
            raise NotHere(f"{missing[0]} is missing from {folder}")
    return folder


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
