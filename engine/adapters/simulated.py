"""Models that compute nothing: sizes, speeds and failures as the catalogue entry declares them.

Their answers are deterministic functions of the input, so that tests can tell whose answer is whose.
A catalogue entry's `options` are the fields of `Declared`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from engine.adapters.family import Footprint, Prepared, Progressed
from engine.catalog import ModelSpec
from engine.errors import EngineError, InferenceFailed
from engine.requests import (
    Encoded,
    Extracted,
    Generated,
    GenerateOptions,
    Item,
    Options,
    Output,
    Scored,
    Task,
    Usage,
)

if TYPE_CHECKING:
    from torch import Tensor


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a simulated model takes, in bytes and seconds, and how it fails."""

    weights_bytes: int = 100 * 2**20
    workspace_per_cost: float = 1024.0
    kv_bytes_per_token: int = 1024
    seconds_per_batch: float = 0.002
    seconds_per_cost: float = 0.0001
    load_seconds: float = 0.5
    restore_seconds: float = 0.05
    """From the device to host memory, or back."""
    peak_per_cost: float | None = None
    """What a batch really holds; None: as much as it says."""
    lora_bytes: int = 10 * 2**20
    """What each of its adapters takes."""
    lora_seconds: float = 0.1
    """What one takes to load."""
    lora_error: str = ""
    """The adapter of this name does not load."""
    out_of_memory_above: int | None = None
    """A batch of more than this cost runs out of memory."""
    load_error: str = ""
    """Loading fails, and says so."""
    poison: str = ""
    """An input with this text in it makes the batch raise."""


class SimulatedPreparer:
    """Cost: one for each word."""

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        return [self._prepare(task, item, options) for item in items]

    def _prepare(self, task: Task, item: Item, options: Options) -> Prepared:
        text = item.text or ""
        cost = max(1, len(text.split()))
        new = options.max_new_tokens if isinstance(options, GenerateOptions) else 0
        usage = Usage(input_tokens=cost, images=len(item.images))
        loras = () if options.lora is None else (options.lora,)
        return Prepared(cost, (task, text, new), len(text), usage, cost + new if new else 0, loras)


class SimulatedModel:
    def __init__(self, declared: Declared, dims: int) -> None:
        self._declared = declared
        self._dims = dims
        self.weights_bytes = declared.weights_bytes
        self.load_seconds = declared.load_seconds
        self.restore_seconds = declared.restore_seconds
        self._running: dict[str, tuple[str, int, int]] = {}  # text, tokens wanted, tokens given
        self._adapters: set[str] = set()

    def seconds(self, cost: int) -> float:
        return self._declared.seconds_per_batch + cost * self._declared.seconds_per_cost

    def peak_bytes(self, cost: int) -> int:
        per_cost = self._declared.peak_per_cost
        return int(cost * (self._declared.workspace_per_cost if per_cost is None else per_cost))

    def bring(self, name: str) -> SimulatedModel:
        """What its device asks how long that takes."""
        declared = self._declared
        if name == declared.lora_error:
            raise RuntimeError(f"no adapter {name}")
        self._adapters.add(name)
        return SimulatedModel(Declared(declared.lora_bytes, load_seconds=declared.lora_seconds), self._dims)

    def let_go(self, name: str) -> None:
        self._adapters.discard(name)

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        self._allocate(jobs)
        texts = [job.payload[1] for job in jobs]
        if self._declared.poison and any(self._declared.poison in text for text in texts):
            raise RuntimeError("poisoned")
        return [self._answer(*job.payload) for job in jobs]

    def _answer(self, task: Task, text: str, new_tokens: int) -> Output | EngineError:
        """A vector, or a score, that only this text has."""
        seed = zlib.crc32(text.encode("utf-8", "replace"))
        if task is Task.SCORE:
            return Scored(seed / 2**32)
        if task is Task.EXTRACT:
            return Extracted(data={"echo": text})
        if task is Task.ENCODE:
            return Encoded(dense=np.random.default_rng(seed).standard_normal(self._dims, dtype=np.float32))
        return InferenceFailed("generation goes by quanta")

    def advance(
        self, joining: Mapping[str, Prepared], leaving: Sequence[str], seconds: float
    ) -> Mapping[str, Progressed]:
        """One token a quantum for each sequence: the words of its prompt, again and again."""
        for job in leaving:
            self._running.pop(job, None)
        self._allocate(tuple(joining.values()))
        for job, prepared in joining.items():
            self._running[job] = (prepared.payload[1], prepared.payload[2], 0)
        progressed: dict[str, Progressed] = {}
        for job, (text, wanted, given) in tuple(self._running.items()):
            words = text.split() or [""]
            piece = words[given % len(words)] + " "
            self._running[job] = (text, wanted, given + 1)
            done = None
            if given + 1 >= wanted:
                del self._running[job]
                whole = " ".join(words[n % len(words)] for n in range(wanted)) + " "
                done = Generated(whole, "length", tuple(range(wanted)))
            progressed[job] = Progressed(piece, 1, done)
        return progressed

    def tensors(self) -> Mapping[str, Tensor]:
        return {}

    def unload(self) -> None:
        self._running.clear()

    def _allocate(self, jobs: Sequence[Prepared]) -> None:
        for job in jobs:
            assert self._adapters.issuperset(job.loras), "a batch runs without its adapter"
        most = self._declared.out_of_memory_above
        if most is not None and sum(job.cost for job in jobs) > most:
            raise MemoryError(f"more than {most}")


class SimulatedFamily:
    cost_unit: ClassVar[str] = "words"
    tasks: ClassVar[frozenset[Task]] = frozenset(Task)

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        declared = _declared(spec)
        return Footprint(declared.weights_bytes, 0, declared.workspace_per_cost, declared.kv_bytes_per_token)

    def adapter_footprint(self, spec: ModelSpec, name: str, path: Path) -> Footprint:
        return Footprint(_declared(spec).lora_bytes)

    def preparer(self, spec: ModelSpec, path: Path) -> SimulatedPreparer:
        return SimulatedPreparer()

    def load(self, spec: ModelSpec, path: Path, device: str) -> SimulatedModel:
        declared = _declared(spec)
        if declared.load_error:
            raise RuntimeError(declared.load_error)
        return SimulatedModel(declared, next(iter(spec.dims.values()), 8))


def _declared(spec: ModelSpec) -> Declared:
    return msgspec.convert(dict(spec.options), Declared)


FAMILY = SimulatedFamily()
