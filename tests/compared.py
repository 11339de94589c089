"""What the tests that compare a family with the library that defines it measured: a line of JSON for each.

`python -m tests.compared > docs/compared.jsonl`; files of tests/engine/adapters as arguments run those alone.
A test takes the fixture `compared` and tells it both sides; nothing is compared a second time here. Real
weights are those of the starter pack; the others are tiny random ones, of the family's own configuration
class. All in float32 on the CPU.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "engine/adapters"
FIXTURE = "compared"
VECTOR = 8
"""Fewer numbers than this have no direction worth a cosine."""


def line(
    family: str,
    model: str,
    reference: str,
    ours: Sequence[Any],
    theirs: Sequence[Any],
    alone: Sequence[Any] | None = None,
    weights: str = "random",
) -> dict[str, Any]:
    """`ours` and `theirs` hold an answer for each input: numbers, or texts, which can only be equal.

    `alone` is `ours` with each input in a batch of its own, where the test ran that too.
    """
    said: dict[str, Any] = {
        "family": family,
        "model": model,
        "weights": weights,
        "reference": reference,
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    if _numbers(ours) is None:
        said["equal"] = list(ours) == list(theirs)
        said |= {} if alone is None else {"batch_equals_single": list(ours) == list(alone)}
        return said
    said["max_difference"] = float(f"{_apart(ours, theirs):.1e}")
    if min(row.size for row in _rows(ours)) >= VECTOR and family.endswith("encoder"):
        said["cosine"] = round(min(map(_cosine, _rows(ours), _rows(theirs))), 6)
    return said | ({} if alone is None else {"batch_equals_single": _apart(ours, alone) <= 1e-4})


def _numbers(rows: Sequence[Any]) -> list[np.ndarray] | None:
    try:
        return [np.asarray(row, np.float64).ravel() for row in rows]
    except (TypeError, ValueError):
        return None


def _rows(rows: Sequence[Any]) -> list[np.ndarray]:
    found = _numbers(rows)
    assert found is not None
    return found


def _apart(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    pairs = zip(_rows(ours), _rows(theirs), strict=True)
    return max(float(np.abs(a - b).max(initial=0)) for a, b in pairs)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


class Listener:
    """Runs the tests that take the fixture, and no others; keeps what those that passed said."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if FIXTURE in getattr(item, "fixturenames", ())]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.said += [value for name, value in report.user_properties if name == FIXTURE]


def main(files: Sequence[str]) -> int:
    listener = Listener()
    chosen = [str(FOLDER / name) for name in files] or [str(FOLDER)]
    with contextlib.redirect_stdout(sys.stderr):
        ended = pytest.main(["-q", "-p", "no:cacheprovider", *chosen], plugins=[listener])
    for said in sorted(listener.said, key=lambda said: (said["family"], said["weights"] != "real")):
        sys.stdout.write(json.dumps(said) + "\n")
    return int(ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
