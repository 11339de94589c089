"""What families share whose own network stands behind an encoder and reads texts in windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import MODEL_MAPPING

from engine.adapters.family import Prepared
from engine.adapters.forward import weights
from engine.errors import EngineError
from engine.requests import Output

J = TypeVar("J")
J_contra = TypeVar("J_contra", contravariant=True)
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class Network(Protocol[J_contra, S_co]):
    """`see` gives what `module` makes of each job."""

    @property
    def module(self) -> nn.Module: ...

    def see(self, jobs: Sequence[J_contra]) -> Sequence[S_co]: ...


class Extractor(Generic[J, S]):
    """A model of such a family. `answer` is told of each job what the network saw."""

    def __init__(self, network: Network[J, S], answer: Callable[[J, S], Output | EngineError]) -> None:
        self._network = network
        self._answer = answer

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(J, job.payload) for job in jobs]
        seen = self._network.see(payloads)
        return [self._answer(job, each) for job, each in zip(payloads, seen, strict=True)]

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._network.module)

    def unload(self) -> None:
        weights.release(self._network.module)


def encoder_and_rest(
    path: Path, prefix: str, config: Any, dtype: torch.dtype, device: str
) -> tuple[nn.Module, dict[str, Tensor]]:
    """The encoder, whose weights have names that begin with `prefix`, and the other weights, in `dtype`.

    Raises BadWeights.
    """
    stored = weights.stored_tensors(path)
    state = weights.read(stored, dtype) if torch.device(device).type == "cpu" else weights.mapped(stored)
    own = {k.removeprefix(prefix): state.pop(k) for k in list(state) if k.startswith(prefix)}
    kind = cast(Any, MODEL_MAPPING)[type(config)]
    without = frozenset(["pooler", "position_ids"])
    encoder = weights.given(kind, config, own, dtype, without=without, where=str(path))
    return cast(nn.Module, encoder), {name: tensor.to(dtype) for name, tensor in state.items()}
