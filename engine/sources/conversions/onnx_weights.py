"""Reads the weights of a quantised ONNX encoder back as float32, under the names they have in torch.

Exporters keep a module's path in the names of nodes: `/bert/encoder/layer.0/.../query/MatMul_quant`
holds the weight of `bert.encoder.layer.0...query`. A weight comes back with the rounding of its
quantisation in it: it equals the shipped file, not the checkpoint that the file was made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[Any]


def state(path: Path) -> dict[str, Array]:
    """Every weight and bias of the graph, matrices as torch has them: (out, in)."""
    graph = onnx.load(str(path)).graph
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = _named(held)
    for node in graph.node:
        weight = _matrix(node, held)
        if weight is not None:
            found[f"{_module(node.name)}.weight"] = weight
    return found


def _named(held: Mapping[str, Array]) -> dict[str, Array]:
    """What kept its torch name: biases, norms, and the int8 tables of the embeddings."""
    found = {}
    for name, array in held.items():
        if name.endswith((".weight", ".bias")) and array.dtype in (np.float32, np.float16):
            found[name] = array.astype(np.float32)
        if name.endswith(".weight_quantized"):
            found[name.removesuffix("_quantized")] = _int8(name, held)
    return found


def _matrix(node: onnx.NodeProto, held: Mapping[str, Array]) -> Array | None:
    """The weight that a product multiplies by; None for other nodes and for products of activations."""
    if node.op_type == "MatMulNBits":
        return _int4(node, held)
    if node.op_type not in ("MatMul", "MatMulInteger") or node.input[1] not in held:
        return None
    if node.op_type == "MatMulInteger":
        return _int8(node.input[1], held).T
    return held[node.input[1]].astype(np.float32).T


def _int8(name: str, held: Mapping[str, Array]) -> Array:
    base = name.removesuffix("_quantized")
    zero = held[f"{base}_zero_point"].astype(np.float32)
    return (held[name].astype(np.float32) - zero) * held[f"{base}_scale"].astype(np.float32)


def _int4(node: onnx.NodeProto, held: Mapping[str, Array]) -> Array:
    """Two weights a byte, the low nibble first, 8 standing for zero, one scale a block."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if given["bits"] != 4 or len([name for name in node.input if name]) != 3:
        raise ValueError(f"{node.name}: only 4-bit weights without zero points are read")
    packed, scales = held[node.input[1]], held[node.input[2]]
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(given["N"], -1, given["block_size"])
    values = (nibbles.astype(np.float32) - 8) * scales.reshape(given["N"], -1, 1).astype(np.float32)
    return values.reshape(given["N"], -1)[:, : given["K"]]


def _module(node: str) -> str:
    return ".".join(node.strip("/").split("/")[:-1])
