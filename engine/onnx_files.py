"""Which file of a model directory ONNX Runtime is to run."""

from __future__ import annotations

from pathlib import Path

from engine.entry import ModelSpec

NAMES = {
    "onnx": ("onnx/model.onnx", "model.onnx"),
    "onnx-int8": (
        "onnx/model_int8.onnx",
        "onnx/model_quantized.onnx",
        "model_int8.onnx",
        "model_quantized.onnx",
    ),
}
"""By backend, as Optimum, sentence-transformers and the hub's exporters call it."""


def graph_file(path: Path, spec: ModelSpec) -> Path | None:
    """The file that the entry's option `onnx_file` names, else the first of the usual ones that is there."""
    named = spec.options.get("onnx_file")
    names = (str(named),) if named else NAMES[spec.backend]
    return next((path / name for name in names if (path / name).is_file()), None)
