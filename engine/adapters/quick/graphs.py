"""CUDA graphs of an encoder, one a grid: a batch is then one launch in the place of hundreds.

Written against torch 2.13 and not run on the machines this was built on: they have no card.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.adapters.forward.packing import Layout
from engine.adapters.quick import grids
from engine.adapters.quick.grids import Grid
from engine.adapters.quick.steps import Inputs, Run, filled

log = logging.getLogger(__name__)

OFTEN = 3
"""A grid is recorded when it is met for the third time: most shapes never come again."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One grid's: `replay` makes `states` of what is in `inputs`, to be read before the next of any grid."""

    inputs: Inputs
    states: Tensor
    replay: Callable[[], None]


class Recorder(Protocol):
    """Makes the recordings of one model. One caller at a time."""

    def record(self, run: Run, inputs: Inputs) -> Recorded:
        """Of a run on these inputs, which are its own from now on. Raises RuntimeError when it cannot be."""
        ...

    def begin(self) -> None:
        """What the current stream does from now on waits for the last replay on any."""
        ...

    def end(self) -> None:
        """The current stream has been given a replay, and whatever copies its states."""
        ...

    def close(self) -> None:
        """Give back the memory of all recordings."""
        ...


class Graphed:
    """Recordings share their memory: one at a time is replayed, by whichever slot."""

    def __init__(self, forward: Callable[..., Any], recorder: Recorder) -> None:
        self._run = filled(forward)
        self._recorder = recorder
        self._recorded: dict[Grid, Recorded | None] = {}
        self._met: Counter[Grid] = Counter()
        self._lock = threading.Lock()

    def split(self, layout: Layout) -> Sequence[tuple[slice, Grid]]:
        grid = grids.grid_of(layout.lengths)
        if grid is None:
            return []
        with self._lock:
            self._met[grid] += 1
            if self._met[grid] < OFTEN or self._recorded.get(grid, ...) is None:
                return []
        return [(slice(0, len(layout)), grid)]

    def run(self, grid: Grid, inputs: Inputs) -> Tensor:
        with self._lock:
            if grid not in self._recorded:
                self._recorded[grid] = self._try(grid, inputs)
            recorded = self._recorded[grid]
            if recorded is None:
                return self._run(inputs)
            self._recorder.begin()
            for held, given in zip(recorded.inputs, inputs, strict=True):
                if held is not None and given is not None:
                    held.copy_(given)
            recorded.replay()
            states = recorded.states.clone()
            self._recorder.end()
            return states

    def close(self) -> None:
        with self._lock:
            self._recorded.clear()
            self._recorder.close()

    def _try(self, grid: Grid, inputs: Inputs) -> Recorded | None:
        types = None if inputs.types is None else inputs.types.clone()
        own = Inputs(inputs.ids.clone(), inputs.positions.clone(), inputs.seen.clone(), types)
        try:
            return self._recorder.record(self._run, own)
        except RuntimeError as error:
            log.warning("no graph of %d x %d tokens is made: %s", grid.rows, grid.length, error)
            return None


_RECORDING = threading.Lock()
"""CUDA takes one recording at a time in a process."""


class CudaRecorder:
    """Recordings of one model on one card: a pool of memory and a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)
        self._last = torch.cuda.Event()
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def record(self, run: Run, inputs: Inputs) -> Recorded:
        slot = torch.cuda.current_stream()
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(slot)
        try:
            with torch.cuda.stream(self._stream):
                for _ in range(2):  # libraries choose their kernels and make room for themselves
                    run(inputs)
            # Other slots go on meanwhile: what they allocate is no part of this.
            recording = torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            )
            with _RECORDING, recording:
                states = run(inputs)
        finally:
            # A recording that failed leaves its own stream behind as the current one.
            torch.cuda.set_stream(slot)
        slot.wait_stream(self._stream)
        self._graphs.append(graph)
        return Recorded(inputs, states, graph.replay)

    def begin(self) -> None:
        torch.cuda.current_stream().wait_event(self._last)

    def end(self) -> None:
        self._last.record()

    def close(self) -> None:
        self._last.synchronize()
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()
