"""The one small interface that a family of models implements. One file a family, beside this one.

A module in this package that serves models has a `FAMILY`: the catalogue names the module. Modules
are imported when a model of theirs is first asked for, so that one missing library hurts only its own.

Threads: `prepare` runs in any of several threads at once, on one preparer. `run` and `advance` run on
a slot's thread, under a lease, and may be entered by several slots at once unless the catalogue entry
limits the model to one. `load` and `unload` run on a thread of the memory manager.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

import msgspec

from engine.catalog import ModelSpec
from engine.chosen import Chosen
from engine.errors import EngineError
from engine.memory.footprint import Footprint as Footprint
from engine.requests import Item, Options, Output, Task, Usage

if TYPE_CHECKING:
    from torch import Tensor

    from engine.adapters.preparing.cutting import Cutter


class Prepared(msgspec.Struct, frozen=True):
    """One input, ready for the device. Only the adapter that made it looks inside `payload`."""

    cost: int
    """In the family's `cost_unit`, at least 1: what the scheduler batches, predicts and charges by."""
    payload: Any
    nbytes: int
    """Host memory that it holds while it waits."""
    usage: Usage = Usage()
    kv_tokens: int = 0
    """Generation only: the most tokens that its sequence can come to hold."""
    loras: tuple[str, ...] = ()
    """Adapters that it is read with, as the entry names them."""


class Preparer(Protocol):
    """Tokenizer, image processor or header reader: usable before any weights are loaded."""

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        """One entry per item, in order. An item that is wrong has its error in its place.

        Raises `InvalidInput` when the options themselves are wrong (an unknown label, a pooling that
        the model cannot do). Text goes through calls that release the GIL (`encode_batch`).
        """
        ...


@runtime_checkable
class Cutting(Protocol):
    """A preparer whose model reads tokens that can be shown."""

    @property
    def cutter(self) -> Cutter: ...


@runtime_checkable
class Model(Protocol):
    """Weights on a device."""

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        """One output per job, in order. A job that fails alone has its error in its place.

        Jobs may differ in options: what does not change the forward pass (pooling, normalise, dtype,
        heads, labels applied afterwards) is done per job after one forward pass.
        """
        ...

    def unload(self) -> None:
        """Give back everything: tensors, children, files."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A model that gives up a job in its middle when nobody waits for it any more."""

    def run_while(
        self, jobs: Sequence[Prepared], wanted: Sequence[Callable[[], bool]]
    ) -> Sequence[Output | EngineError]:
        """As `Model.run`. Of a job that is no longer `wanted` it does not matter what it gives."""
        ...


@dataclass(frozen=True, slots=True)
class Progressed:
    """What one quantum did for one sequence: new text, and the whole answer when it is done."""

    text: str
    tokens: int
    done: Output | EngineError | None = None
    chosen: tuple[Chosen, ...] = ()
    """The tokens of `text`, where their chances were asked for."""


@runtime_checkable
class GenerativeModel(Protocol):
    """A model that answers over several quanta. It holds the state of its running sequences."""

    def advance(
        self, joining: Mapping[str, Prepared], leaving: Sequence[str], seconds: float
    ) -> Mapping[str, Progressed]:
        """One quantum: forget `leaving`, prefill `joining`, then decode all running sequences.

        Keys are job ids. Stops decoding after about `seconds` of predicted time, but takes at least
        one step. Answers for every sequence that ran; one that is done or failed is forgotten.
        """
        ...

    def unload(self) -> None: ...


@runtime_checkable
class Parkable(Protocol):
    """A model whose weights may wait in host memory: it works again when its tensors have their values.

    The others are unloaded and loaded anew.
    """

    def tensors(self) -> Mapping[str, Tensor]:
        """All that it holds on its device while nothing runs. Their `data` is exchanged in place."""
        ...


@runtime_checkable
class Fixed(Protocol):
    """A model of tensors that must stay where they are: it is never parked."""

    @property
    def in_halves(self) -> bool:
        """Whether some of them have half precision, so that more can be had of them."""
        ...


@runtime_checkable
class Sleeping(Protocol):
    """A model in processes of its own that can give its device's memory back and stay alive."""

    @property
    def pids(self) -> frozenset[int]:
        """Its processes: what they hold on the device is ours."""
        ...

    @property
    def device_bytes(self) -> int:
        """What they were granted there."""
        ...

    def sleep(self) -> int:
        """Keeps its weights in host memory: how many bytes those are. Nobody runs it until `wake`.

        When it raises, it has been unloaded.
        """
        ...

    def wake(self) -> None:
        """It runs again on the device where it slept."""
        ...

    def unload(self) -> None: ...


@runtime_checkable
class Adapting(Protocol):
    """A model over which adapters are laid, each a unit of its own. Batches that need none run meanwhile."""

    def bring(self, name: str) -> object:
        """The adapter's weights are there when it returns. Raises why they cannot be."""
        ...

    def let_go(self, name: str) -> None:
        """They are not, and no batch needs them."""
        ...


@runtime_checkable
class Adaptable(Protocol):
    """A family whose models can have adapters."""

    def adapter_footprint(self, spec: ModelSpec, name: str, path: Path) -> Footprint:
        """What the adapter takes beside the model at `path`. Raises InvalidInput for one that cannot be
        served."""
        ...


class Family(Protocol):
    """How models of one architecture are sized, prepared and loaded. Has no state."""

    cost_unit: ClassVar[str]
    """What a cost of 1 is: tokens, pixels, pages, audio_ms."""
    tasks: ClassVar[frozenset[Task]]
    """What its models can be asked. An entry that says more is refused when it is first asked for."""

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        """From configuration and safetensors headers alone; reads no weights."""
        ...

    def preparer(self, spec: ModelSpec, path: Path) -> Preparer: ...

    def load(self, spec: ModelSpec, path: Path, device: str) -> Model | GenerativeModel:
        """Weights onto `device` (a torch device string), every byte touched. May raise anything."""
        ...


_IMPORTING = threading.Lock()
"""One family's libraries at a time: those of transformers import each other in circles as they are first
used, and two threads in such a circle see half of it and fail."""


def family(name: str) -> Family:
    """The family that the catalogue calls `name`. Raises LookupError with the names there are."""
    if name not in names():
        raise LookupError(f"no family {name!r}; there are: {', '.join(names())}")
    with _IMPORTING:
        return cast(Family, importlib.import_module(f"engine.adapters.{name}").FAMILY)


def names() -> list[str]:
    """Modules of this package that have a `FAMILY`. Nothing is imported to find out."""
    modules = Path(__file__).parent.glob("*.py")
    return sorted(m.stem for m in modules if m.stem != "family" and "\nFAMILY" in m.read_text("utf-8"))
