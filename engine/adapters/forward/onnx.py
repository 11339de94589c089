"""Transformers run by ONNX Runtime, behind the interface of `Encoder`: padded, by similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel

from engine.adapters.family import Footprint, Model, Prepared
from engine.adapters.forward.packed import CHUNK, Encoder, Hidden, Ids, workspace_per_token
from engine.adapters.forward.packing import Layout, buckets
from engine.adapters.forward.table import Table
from engine.adapters.forward.weights import BadWeights, model_config
from engine.catalog import ModelSpec
from engine.devices.host import trim
from engine.errors import EngineError
from engine.onnx_files import graph_file
from engine.requests import Output

BASE_BYTES = 32 << 20
"""What a forward pass takes whatever its size."""
PREPACKED = 1.5
"""Bytes in memory for each byte of the file; measured on a CPU: 1.3 to 1.6, as matrices are laid out anew."""
STATES = ("last_hidden_state", "token_embeddings", "logits")
KNOWN = frozenset(["input_ids", "attention_mask", "token_type_ids", "position_ids"])


class OnnxModel(nn.Module):
    """A graph with the names that transformers, Optimum and sentence-transformers give. Threads may share it.

    Stands where a transformers model does; has no tensors of its own, and its results are on the CPU.
    """

    base_model_prefix = ""

    def __init__(self, session: Any, config: Any, budget: int) -> None:
        super().__init__()
        self.config = config
        self._session: Any = session
        self._inputs = {put.name: put.type for put in session.get_inputs()}
        if unknown := sorted(self._inputs.keys() - KNOWN):
            raise BadWeights(f"the ONNX graph wants {', '.join(unknown)}, which an encoder does not have")
        names = [put.name for put in session.get_outputs()]
        self._output = next((name for name in STATES if name in names), names[0])
        self._padding = int(getattr(config, "pad_token_id", None) or 0)
        self._budget = budget

    def hidden(
        self,
        sequences: Sequence[Ids],
        types: Sequence[Ids] | None = None,
        seen: Sequence[int] | None = None,
        adapters: Sequence[str | None] | None = None,
    ) -> Hidden:
        """As `Encoder.hidden`. A graph that ends with its classifier gives logits: a row a token, or one
        for each sequence, as if that were its only token.

        `adapters` are never asked of such a model, which shows no network that they could change.
        """
        layout = Layout([len(ids) for ids in sequences], seen)
        ran = list(self._ran(layout, sequences, types))
        if ran[0][1].ndim == 2:
            rows = layout.given(_joined([rows for _, rows in ran]))
            return Hidden(rows, Layout([1] * len(sequences)))
        return Hidden(_joined([states[real] for real, states in ran]), layout)

    def warm(self, rank: int) -> None:
        """One pass; raises BadWeights when the output has not so many dimensions."""
        ((_, found),) = self._ran(Layout([1]), [np.zeros(1, np.int32)], None)
        if found.ndim != rank:
            raise BadWeights(f"the ONNX graph gives {self._output} of {found.ndim} dimensions, not {rank}")

    def release(self) -> None:
        self._session = None
        trim()

    def _ran(
        self, layout: Layout, sequences: Sequence[Ids], types: Sequence[Ids] | None
    ) -> Iterator[tuple[NDArray[np.bool_], NDArray[Any]]]:
        """In laid order: where the tokens of a bucket are, and what the graph says of it."""
        for places in buckets(layout.lengths, self._budget):
            lengths, order = layout.lengths[places], layout.order[places]
            column = np.arange(lengths[-1])
            real = column < lengths[:, None]
            seen = lengths if layout.seen is None else layout.seen[places]
            inputs = {
                "input_ids": _grid(real, [sequences[i] for i in order], self._padding),
                "attention_mask": (column < seen[:, None]).astype(np.int64),
                "token_type_ids": _grid(real, None if types is None else [types[i] for i in order], 0),
                "position_ids": np.broadcast_to(column, real.shape).astype(np.int64),
            }
            given = {name: _as(inputs[name], kind) for name, kind in self._inputs.items()}
            yield real, self._session.run([self._output], given)[0]


Network = PreTrainedModel | OnnxModel


def encoder(network: Network | Table) -> Encoder | OnnxModel | Table:
    return network if isinstance(network, OnnxModel | Table) else Encoder(network)


class Whole:
    """A model whose weights no tensor holds: it cannot be parked, only unloaded."""

    def __init__(self, model: Model, network: OnnxModel) -> None:
        self._model = model
        self._network = network

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        return self._model.run(jobs)

    def unload(self) -> None:
        self._network.release()


def load(spec: ModelSpec, path: Path, device: str, rank: int) -> OnnxModel:
    """The graph of a model directory on `device`, one thread a slot; its output has `rank` dimensions.

    Raises BadWeights where the installed ONNX Runtime cannot use the device.
    """
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # An arena keeps the most that any batch ever took; the ledger lends by the batch.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    file = graph_file(path, spec)
    if file is None:
        raise BadWeights(f"{path} has no ONNX graph for backend {spec.backend}")
    kind = torch.device(device).type
    session = runtime.InferenceSession(str(file), options, providers=_providers(spec, device))
    config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=spec.trust_remote_code)
    model = OnnxModel(session, config, CHUNK.get(kind, CHUNK["cpu"]))
    model.warm(rank)
    return model


def footprint(spec: ModelSpec, path: Path) -> Footprint:
    """From the sizes of the graph and of the data beside it."""
    file = graph_file(path, spec)
    if file is None:
        raise BadWeights(f"{path} has no ONNX graph for backend {spec.backend}")
    config = model_config(path)
    size = sum(each.stat().st_size for each in (file, *file.parent.glob(f"{file.name}[_.]data*")))
    heads = int(config.get("num_attention_heads") or config.get("n_heads") or 12)
    # softmax and its input, a row of the longest input for each head
    scores = 2 * 4 * heads * int(spec.max_tokens or config.get("max_position_embeddings") or 512)
    return Footprint(int(PREPACKED * size), BASE_BYTES, workspace_per_token(config) + scores)


def _runtime() -> Any:
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        raise BadWeights("backend onnx needs ONNX Runtime: pip install 'serai[onnx]'") from None
    return onnxruntime


def _providers(spec: ModelSpec, device: str) -> list[Any]:
    where = torch.device(device)
    if where.type != "cuda":
        return ["CPUExecutionProvider"]
    there = _runtime().get_available_providers()
    if "CUDAExecutionProvider" not in there:
        raise BadWeights("this ONNX Runtime has no CUDA: install onnxruntime-gpu, or set devices: [cpu]")
    number = {"device_id": where.index or 0}
    cuda = ("CUDAExecutionProvider", {**number, "arena_extend_strategy": "kSameAsRequested"})
    wanted = spec.options.get("tensorrt", False)
    if wanted and "TensorrtExecutionProvider" not in there:
        raise BadWeights("the entry asks for TensorRT, which this ONNX Runtime does not have")
    return [*([("TensorrtExecutionProvider", number)] if wanted else []), cuda, "CPUExecutionProvider"]


def _joined(parts: Sequence[NDArray[Any]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.float32, copy=False))


def _grid(real: NDArray[np.bool_], values: Sequence[Ids] | None, filler: int) -> NDArray[np.int64]:
    grid = np.full(real.shape, filler, np.int64)
    if values is not None:
        grid[real] = np.concatenate(values)
    return grid


def _as(values: NDArray[np.int64], kind: str) -> NDArray[Any]:
    return values.astype(np.int32) if kind == "tensor(int32)" else values
