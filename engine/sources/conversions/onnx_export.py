"""ONNX graphs of model directories that have none, and graphs with eight-bit weights."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification

from engine.adapters.forward import gte, weights
from engine.sources.conversions import onnx_bytes
from engine.sources.conversions.copied import PICKLES
from engine.sources.files import WheelFiles

OPSET = 17
BACKBONE = frozenset(["model.safetensors", "model.safetensors.index.json"])
DECODERS = frozenset(["gemma", "gemma3_text", "llama", "mistral", "qwen2", "qwen3"])
GRAPH = Path("onnx", "model.onnx")
SMALL = Path("onnx", "model_int8.onnx")


def onnx_encoder(read: WheelFiles, out: Path) -> None:
    """Ends with the last hidden states."""
    _export(AutoModel, read, out, "last_hidden_state")


def onnx_sequence(read: WheelFiles, out: Path) -> None:
    """Ends with a row of logits for each sequence."""
    _export(AutoModelForSequenceClassification, read, out, "logits")


def onnx_tokens(read: WheelFiles, out: Path) -> None:
    """Ends with a row of logits for each token."""
    _export(AutoModelForTokenClassification, read, out, "logits")


def onnx_int8(read: WheelFiles, out: Path) -> None:
    """Matrices in eight bits. Reads `onnx/model.onnx` or `model.onnx`."""
    graph = next(read.folder / name for name in (GRAPH.as_posix(), GRAPH.name) if name in read.names)
    _beside(read, out)
    (out / SMALL).parent.mkdir(exist_ok=True)
    onnx_bytes.shrink(graph, out / SMALL)


class _Traced(nn.Module):
    """Positional inputs, one output: what the exporter can name."""

    def __init__(self, model: Any, names: list[str], output: str) -> None:
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *inputs: Tensor) -> Any:
        return self.model(**dict(zip(self.names, inputs, strict=True)))[self.output]


def _export(auto: Any, read: WheelFiles, out: Path, output: str) -> None:
    gte.register()
    without = ("pooler",) if auto is AutoModel else ()
    model: Any = weights.load(auto, read.folder, "cpu", torch.float32, without=without)
    if model.config.model_type in DECODERS:
        raise ValueError(f"{model.config.model_type} is a decoder; ONNX graphs are made of encoders only")
    model.set_attn_implementation("eager")
    names = ["input_ids", "attention_mask"]
    takes = inspect.signature(model.base_model.forward).parameters
    if "token_type_ids" in takes and getattr(model.config, "type_vocab_size", 0) > 1:
        names.append("token_type_ids")
    ids = torch.arange(3, 17).view(2, 7) % model.config.vocab_size
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    sample = (ids, mask, torch.zeros_like(ids))[: len(names)]
    by_token = names if auto is AutoModelForSequenceClassification else [*names, output]
    axes = {name: {0: "batch", 1: "tokens"} for name in by_token}
    (out / GRAPH).parent.mkdir(parents=True)
    with torch.inference_mode():
        torch.onnx.export(
            _Traced(model, names, output).eval(),
            sample,
            str(out / GRAPH),
            input_names=names,
            output_names=[output],
            dynamic_axes={output: {0: "batch"}} | axes,
            opset_version=OPSET,
            dynamo=False,  # the other exporter needs a further library, and gives the same graph
        )
    _beside(read, out)


def _beside(read: WheelFiles, out: Path) -> None:
    """All that belongs to the model but its weights: tokenizer, configuration, layers after it."""
    for name in read.names:
        if name in BACKBONE or name == "serai.json" or ".onnx" in name or name.endswith(PICKLES):
            continue
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(read.path(name), out / name)
