"""An ONNX graph whose matrices have eight bits: ONNX Runtime's MatMulNBits, blocks of 32 with a scale each.

Each row of a batch is rounded by itself, so that results do not depend on neighbours; with the runtime's
own dynamic quantisation they do, and were twenty times further from float32.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

BLOCK = 32
DOMAIN = "com.microsoft"
ZERO = 128


def shrink(source: Path, target: Path) -> None:
    """Every product with a stored matrix is replaced; embeddings, norms and biases stay as they are."""
    model = onnx.load(source)
    stored = {each.name: each for each in model.graph.initializer}
    uses = Counter(name for node in model.graph.node for name in node.input)
    products = [node for node in model.graph.node if _shrinks(node, stored, uses)]
    if not products:
        raise ValueError(f"{source} has no products with stored matrices")
    for node in products:
        matrix = stored.pop(node.input[1])
        model.graph.initializer.remove(matrix)
        model.graph.initializer.extend(_replace(node, onnx.numpy_helper.to_array(matrix)))
    model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    onnx.save(model, target)


def _shrinks(node: Any, stored: dict[str, Any], uses: Counter[str]) -> bool:
    matrix = stored.get(node.input[1]) if node.op_type == "MatMul" else None
    return matrix is not None and len(matrix.dims) == 2 and uses[matrix.name] == 1


def _replace(node: Any, matrix: NDArray[np.float32]) -> list[Any]:
    """Changes the node; returns what it reads in place of the (inputs, outputs) matrix."""
    inner, outer = matrix.shape
    blocks = -(-inner // BLOCK)
    padded = np.zeros((outer, blocks * BLOCK), np.float32)
    padded[:, :inner] = matrix.T
    rows = padded.reshape(outer, blocks, BLOCK)
    scales = np.abs(rows).max(-1, keepdims=True) / (ZERO - 1)
    whole = np.rint(rows / np.where(scales > 0, scales, 1)) + ZERO
    name = node.input[1]
    parts = {f"{name}_bytes": whole.astype(np.uint8), f"{name}_scales": scales[..., 0].astype(np.float32)}
    given = node.input[0]
    del node.input[:]
    node.input.extend([given, *parts])
    node.op_type, node.domain = "MatMulNBits", DOMAIN
    # 4: products are made of bytes, activations rounded by block of each row
    sizes = {"K": inner, "N": outer, "bits": 8, "block_size": BLOCK, "accuracy_level": 4}
    node.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in sizes.items())
    return [onnx.numpy_helper.from_array(values, key) for key, values in parts.items()]
