"""Where latency stops holding its target as load rises: the knee, and what else the curve says. Pure.

The knee is a threshold with a certificate of stability, not a shape: shape detectors (Kneedle) put it
1.6 to 3 times too high on bursty arrivals, and it moves with how far one swept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from replay.steps import Step
from replay.trace import Floats

RESAMPLES = 2000

WORST = 4.0
"""A step counts as at most so many times over its target."""


@dataclass(frozen=True, slots=True)
class Knee:
    """Requests per second. None where the sweep did not reach it."""

    knee_slo: float | None
    low: float | None
    high: float | None
    """A 90 % confidence interval of the knee, over sweeps."""
    saturation: float | None
    """Most that is ever served."""
    first_inflection: float | None
    """Where the curve bends most (Kneedle): its shape only, no limit to rely on."""
    baseline_p99: float
    """At the lowest rate, in seconds."""
    sweeps: int


def find(sweeps: Sequence[Sequence[Step]], target: float, seed: int = 0) -> Knee:
    """The knee of several sweeps of the same ramp; `target` is the p99 in seconds."""
    knees = [knee for sweep in sweeps if (knee := slo_knee(sweep, target)) is not None]
    every = sorted((step for sweep in sweeps for step in sweep), key=lambda step: step.offered)
    low, high = _interval(knees, seed)
    limit = saturation(every)
    return Knee(
        knee_slo=float(np.median(knees)) if knees else None,
        low=low,
        high=high,
        saturation=limit,
        first_inflection=inflection(every, limit),
        baseline_p99=every[0].p99 if every else math.inf,
        sweeps=len(sweeps),
    )


def slo_knee(sweep: Sequence[Step], target: float) -> float | None:
    """The rate at which one sweep crosses `target`; None when it never does.

    Log p99 is fitted by a never-falling curve, so that one unlucky step counts only as far as those
    around it agree, and taken to be linear between steps. A step that was not stable counts as over its
    target whatever its p99; how far over is bounded, or one bad step would outweigh several good ones.
    """
    steps = sorted(sweep, key=lambda step: step.offered)
    want = math.log(target)
    fitted = isotonic(np.array([_height(step, target) for step in steps]))
    above = next((index for index, height in enumerate(fitted) if height > want), None)
    if above is None:
        return None
    if above == 0:  # the lowest rate failed already: the knee is somewhere below, if anywhere
        return steps[0].offered * math.exp(want - fitted[0])
    low, high = fitted[above - 1], fitted[above]
    share = (want - low) / (high - low)
    return float(steps[above - 1].offered * (1 - share) + steps[above].offered * share)


def saturation(steps: Sequence[Step]) -> float | None:
    """Where min(offered, C) fits what was served best: C, in requests per second, and no less than any step
    served. What is under way when a step ends counts as unserved, so that bursts there make the fit too low.

    None when nothing was refused or left behind: then the ramp did not reach it.
    """
    if not steps:
        return None
    offered = np.array([step.offered for step in steps])
    served = np.array([step.served for step in steps])
    if served[-1] >= 0.97 * offered[-1]:
        return None
    tried = np.linspace(served.max() * 0.5, served.max() * 1.1, 400)
    errors = [float(((np.minimum(offered, limit) - served) ** 2).sum()) for limit in tried]
    return max(float(tried[int(np.argmin(errors))]), float(served.max()))


def inflection(steps: Sequence[Step], limit: float | None) -> float | None:
    """Kneedle (Satopaa et al., 2011) on p99 over the rate, up to 1.1 times saturation.

    The point of a convex rising curve that is farthest below its chord, both scaled to [0, 1].
    """
    inside = [s for s in steps if math.isfinite(s.p99) and (limit is None or s.offered <= 1.1 * limit)]
    if len(inside) < 3:
        return None
    rates = np.array([step.offered for step in inside])
    tails = isotonic(np.array([step.p99 for step in inside]))
    if np.ptp(tails) == 0 or np.ptp(rates) == 0:
        return None
    below = (rates - rates[0]) / np.ptp(rates) - (tails - tails[0]) / np.ptp(tails)
    return float(rates[int(below.argmax())])


def isotonic(values: Floats, weights: Floats | None = None) -> Floats:
    """The closest never-falling sequence in least squares, by pool-adjacent-violators (Ayer et al. 1955)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, given in zip(values, np.ones(len(values)) if weights is None else weights, strict=True):
        mean, weight, count = float(value), float(given), 1
        while pools and pools[-1][0] > mean:
            before, other, earlier = pools.pop()
            mean = (before * other + mean * weight) / (other + weight)
            weight, count = other + weight, earlier + count
        pools.append((mean, weight, count))
    return np.concatenate([np.full(count, mean) for mean, _, count in pools])


def _height(step: Step, target: float) -> float:
    """Log p99, within bounds."""
    height = math.log(min(max(step.p99, 1e-9), WORST * target))
    return height if step.stable(target) else max(height, math.log(WORST * target))


def _interval(knees: Sequence[float], seed: int) -> tuple[float | None, float | None]:
    """Percentile bootstrap over sweeps of the median."""
    if len(knees) < 2:
        return None, None
    drawn = np.random.default_rng(seed).choice(np.array(knees), (RESAMPLES, len(knees)))
    medians = np.median(drawn, axis=1)
    return float(np.quantile(medians, 0.05)), float(np.quantile(medians, 0.95))
