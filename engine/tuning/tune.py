"""Which backend, dtype, batch and slots serve a model best on this machine, within a time limit.

What is kept must answer as the model in float32 does. The gain is measured against the entry as it is,
in turns, so that a machine that is busy for a while is busy for both. Quicker ways for torch on a card come
last, for what was best without: they make small batches fast, which throughput does not show.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from engine.adapters.family import Prepared, family
from engine.catalog import ModelSpec, Profile
from engine.entry import ONNX_GRAPHS, QUICK, Backend
from engine.errors import WeightsUnavailable
from engine.tuning import inputs
from engine.tuning.knee import Point, fixed, knee
from engine.tuning.numbers import Apart, apart
from engine.tuning.quicker import FEW, Gains
from engine.tuning.trial import Left, Trial, upto

TOLERANCE = {"float32": (0.9999, 1e-4), "half": (0.999, 1e-2), "onnx-int8": (0.99, 5e-2)}
"""Least cosine of vectors, and most difference of scores."""
JOBS = 256
ROUNDS, READY = 7, 3
CURVES, TURNS = 0.6, 0.85
"""Shares of the time after which no curve, and no round, is begun."""
WORTH = 1.05
"""A gain below this is noise: the entry stays as it is."""
Locate = Callable[[ModelSpec], Path]


@dataclass(frozen=True, slots=True)
class Tried:
    """One way, and what became of it."""

    name: str
    apart: Apart | None = None
    equal: bool = False
    curve: tuple[Point, ...] = ()
    why_not: str = ""

    @property
    def best(self) -> Point | None:
        return knee(self.curve) if self.curve else None


@dataclass
class Report:
    tried: list[Tried] = field(default_factory=list)
    chosen: str = ""
    curve: tuple[Point, ...] = ()
    """Of what was chosen, less the quicker way of torch: of such a way only two batches are timed."""
    batch_cost: int = 0
    fixed_seconds: float = 0.0
    rates: dict[int, float] = field(default_factory=dict)
    """Cost a second by slots."""
    ratios: list[float] = field(default_factory=list)
    """Of each round: seconds of the entry as it is for one of what was chosen."""
    profile: Profile | None = None

    @property
    def bends(self) -> bool:
        """Whether a larger batch than the best was measured, and gave hardly more."""
        return any(point.cost > self.batch_cost for point in self.curve)

    @property
    def gain(self) -> float:
        return statistics.median(self.ratios) if self.ratios else 1.0

    @property
    def slots(self) -> int:
        """The fewest that give nearly the best throughput."""
        best = max(self.rates.values(), default=0.0)
        return min((n for n, rate in self.rates.items() if rate >= best / WORTH), default=1)


class Tuning:
    """One run. `seconds` bounds it, but for the measurement under way and the loads."""

    def __init__(self, spec: ModelSpec, locate: Locate, device: str, slots: int, seconds: float) -> None:
        self._spec, self._locate, self._device, self._slots = spec, locate, device, slots
        self._began, self._seconds = time.monotonic(), seconds
        preparer = family(spec.family).preparer(spec, locate(spec))
        self._jobs = inputs.prepared(spec, preparer, inputs.texts(JOBS))
        self._sample = self._jobs[:16]
        self._reference: list[object] = []
        self.report = Report()

    def run(self, int8: bool, say: Callable[[str], None]) -> Report:
        """`int8`: whether answers may be only nearly equal."""
        exact = self._spec.model_copy(update={"backend": "torch", "dtype": "float32"})
        self._reference = self._answers(exact)
        trials: dict[str, Trial] = {}
        try:
            ways = list(self._ways(int8))
            for number, (name, spec) in enumerate(ways, 1):
                if trials and self._left(CURVES) <= 0:
                    break
                say(name)
                left = partial(self._left, CURVES * number / len(ways))
                self._try(name, spec, trials, left)
            self._choose(trials, say)
        finally:
            for trial in trials.values():
                trial.close()
        return self.report

    def _ways(self, int8: bool) -> Iterator[tuple[str, ModelSpec]]:
        """The entry as it is comes first."""
        yield "as it is", self._spec
        backends: list[Backend] = ["torch"]
        if self._spec.family in ONNX_GRAPHS:
            backends += ["onnx", "onnx-int8"] if int8 else ["onnx"]
        for backend in backends:
            dtypes = (
                ("float16", "bfloat16", "float32") if self._device != "cpu" and backend == "torch" else ()
            )
            for dtype in dtypes or (self._spec.dtype,):
                if (backend, dtype) != (self._spec.backend, self._spec.dtype):
                    spec = self._spec.model_copy(update={"backend": backend, "dtype": dtype})
                    yield f"{backend} {dtype}" if dtypes else backend, spec

    def _answers(self, spec: ModelSpec) -> list[object]:
        trial = Trial("float32", spec, self._locate(spec), self._device)
        try:
            return list(trial.answers(self._sample))
        finally:
            trial.close()

    def _try(
        self,
        name: str,
        spec: ModelSpec,
        trials: dict[str, Trial],
        left: Left,
    ) -> None:
        try:
            trial = Trial(name, spec, self._locate(spec), self._device)
        except (WeightsUnavailable, ValueError, ImportError) as error:
            self.report.tried.append(Tried(name, why_not=str(error)))
            return
        trials[name] = trial
        far = apart(trial.answers(self._sample), self._reference)  # type: ignore[arg-type]
        equal = name == "as it is" or far.within(*TOLERANCE[_accuracy(spec, self._device)])
        curve = tuple(trial.curve(self._jobs, left)) if equal else ()
        self.report.tried.append(Tried(name, far, equal, curve, "" if equal else "its answers differ"))

    def _choose(self, trials: dict[str, Trial], say: Callable[[str], None]) -> None:
        report = self.report
        points = {tried.name: tried.best for tried in report.tried}
        able = [(point, name) for name, point in points.items() if point is not None]
        best, name = max(able, key=lambda pair: pair[0].rate)
        batch = upto(self._jobs, best.cost)
        if name != "as it is":
            say(f"{name} against the entry as it is")
            self._rounds(trials["as it is"], trials[name], batch)
            name = name if report.gain >= WORTH else "as it is"
        report.curve = own = next(tried.curve for tried in report.tried if tried.name == name)
        report.batch_cost, report.fixed_seconds = knee(own).cost, fixed(own)
        report.chosen = name = self._quicker(name, batch, trials, say)
        batch = upto(self._jobs, report.batch_cost)
        say("slots")
        for slots in range(1, self._slots + 1):
            if slots in (1, self._slots) or self._left(1.0) > 0:
                report.rates[slots] = trials[name].rate(batch, slots)
        report.profile = self._profile(trials[name].spec)

    def _quicker(
        self, plain: str, batch: Sequence[Prepared], trials: dict[str, Trial], say: Callable[[str], None]
    ) -> str:
        """The last of the ways that pays against what is best without it; else that one."""
        spec, best = trials[plain].spec, plain
        if self._device == "cpu" or spec.backend != "torch" or spec.family not in ONNX_GRAPHS:
            return plain
        for backend in sorted(QUICK):
            say(backend)
            self._try(backend, spec.model_copy(update={"backend": backend}), trials, lambda: 0.0)
            tried = self.report.tried[-1]
            if not tried.equal:
                continue
            few = upto(self._jobs, FEW)
            for jobs in READY * (few, batch):
                trials[backend].seconds(jobs)  # a way that makes something of a shape has made it then
            gains = Gains(*(self._ratios(trials[best], trials[backend], jobs) for jobs in (few, batch)))
            self.report.tried[-1] = replace(tried, why_not=str(gains))
            best = backend if gains.pays(WORTH) else best
        return best

    def _rounds(self, old: Trial, new: Trial, batch: Sequence[Prepared]) -> None:
        self.report.ratios += self._ratios(old, new, batch)

    def _ratios(self, old: Trial, new: Trial, batch: Sequence[Prepared]) -> list[float]:
        """At least three, each in the other order than the one before."""
        found: list[float] = []
        for number in range(ROUNDS):
            if number >= 3 and self._left(TURNS) <= 0:
                break
            order = (old, new) if number % 2 else (new, old)
            times = {trial.name: trial.seconds(batch) for trial in order}
            found.append(times[old.name] / times[new.name])
        return found

    def _profile(self, spec: ModelSpec) -> Profile:
        limits = {"max_batch_cost": self.report.batch_cost} if self.report.bends else {}
        if self.report.slots < self._slots:
            limits["max_slots"] = self.report.slots
        kept = self._spec.limits.model_dump(exclude_none=True)
        own = {"backend": self._spec.backend, "dtype": self._spec.dtype}
        changed = {key: value for key, old in own.items() if (value := getattr(spec, key)) != old}
        return Profile.model_validate({"limits": kept | limits, **changed})

    def _left(self, share: float) -> float:
        """Seconds until so much of the time has gone."""
        return self._began + share * self._seconds - time.monotonic()


def _accuracy(spec: ModelSpec, device: str) -> str:
    if spec.backend == "onnx-int8":
        return spec.backend
    return "float32" if device == "cpu" or spec.dtype == "float32" else "half"
