"""NanoGuard, a small prompt-injection classifier: a torch checkpoint and a pickled tiktoken encoding."""

from __future__ import annotations

import base64
import io
import json
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from engine.sources.files import WheelFiles

LABELS = ("safe", "injection")


def nanoguard(read: WheelFiles, out: Path) -> None:
    """model.safetensors, config.json (sizes and labels) and tiktoken.json (the tokenizer)."""
    checkpoint = torch.load(read.path("model.pt"), map_location="cpu", weights_only=True)
    weights = {name: tensor.contiguous() for name, tensor in checkpoint["model_state_dict"].items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    sizes = {name: value for name, value in checkpoint["config"].items() if name != "dropout"}
    labels = {str(i): label for i, label in enumerate(LABELS)}
    config = {"model_type": "nanoguard", **sizes, "id2label": labels}
    (out / "config.json").write_text(json.dumps(config, indent=2))
    encoding = read_encoding(read.path("tokenizer.pkl").read_bytes())
    (out / "tiktoken.json").write_text(json.dumps(encoding, ensure_ascii=False))


def read_encoding(data: bytes) -> dict[str, Any]:
    """The state of a pickled `tiktoken.core.Encoding`: name, pattern, ranks by base64, special tokens.

    Nothing of the pickle runs: its one class is replaced by an inert one, any other is refused with
    `pickle.UnpicklingError`.
    """
    read = _OnlyAnEncoding(io.BytesIO(data)).load()
    if not isinstance(read, _State):
        raise pickle.UnpicklingError("the pickle holds no tiktoken encoding")
    ranks: dict[bytes, int] = read.state["mergeable_ranks"]
    return {
        "name": read.state["name"],
        "pattern": read.state["pat_str"],
        "mergeable_ranks": {base64.b64encode(token).decode(): rank for token, rank in ranks.items()},
        "special_tokens": read.state["special_tokens"],
    }


class _State:
    """What stands in for the encoding: it keeps the state that it is given."""

    state: dict[str, Any]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state


class _OnlyAnEncoding(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("tiktoken.core", "Encoding"):
            return _State
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}")
