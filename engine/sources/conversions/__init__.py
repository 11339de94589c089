"""How what a source holds becomes a model directory: one function a conversion, run in a child process.

A conversion takes the source's files and an empty directory to fill. The modules of this package import
model libraries at their top, so only the child imports them; this table is what everyone else reads.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from engine.sources.files import NotHere, WheelFiles

Function = Callable[[WheelFiles, Path], None]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The function of the same name in `module`. A change of what it writes raises `version`."""

    module: str
    version: int = 1
    needs: tuple[str, ...] = ()
    """Libraries that it imports beyond the engine's own."""

    def missing(self) -> list[str]:
        """Those of `needs` that are not installed."""
        return [library for library in self.needs if importlib.util.find_spec(library) is None]


_ONNX = ("torch", "transformers", "onnx")

CONVERSIONS = {
    "copy": Conversion("copied"),
    "files": Conversion("copied"),
    "spacy": Conversion("copied"),
    "splade_tiny": Conversion("copied"),
    "bge_small": Conversion("bert", needs=_ONNX),
    "ms_marco_reranker": Conversion("bert", needs=_ONNX),
    "colbert_backbone": Conversion("bert", needs=_ONNX),
    "rampart": Conversion("bert", needs=_ONNX),
    "multilingual_e5": Conversion("e5", needs=("torch", "transformers", "tokenizers")),
    "smollm2": Conversion("smollm2", needs=("torch", "transformers", "gguf", "accelerate")),
    "mobilenet_v2": Conversion("mobilenet", needs=("torch", "transformers")),
    "slanet_plus": Conversion("slanet", needs=_ONNX),
    "nanoguard": Conversion("nanoguard", needs=("torch", "safetensors")),
    "torch_checkpoint": Conversion("checkpoint", version=2, needs=("torch", "safetensors")),
    "onnx_encoder": Conversion("onnx_export", needs=_ONNX),
    "onnx_sequence": Conversion("onnx_export", needs=_ONNX),
    "onnx_tokens": Conversion("onnx_export", needs=_ONNX),
    "onnx_int8": Conversion("onnx_export", version=2, needs=_ONNX),
}


def conversion(name: str) -> Conversion:
    """The conversion called `name`. Raises NotHere with the names there are."""
    if name not in CONVERSIONS:
        raise NotHere(f"there is no conversion {name!r}; there are: {', '.join(sorted(CONVERSIONS))}")
    return CONVERSIONS[name]


def function(name: str) -> Function:
    """The conversion itself. Imports its libraries: only for the child."""
    module = importlib.import_module(f"{__name__}.{CONVERSIONS[name].module}")
    return cast(Function, getattr(module, name))
