"""How a load test shows what it saw: one table, and a word for every objective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column to the left, the others to the right, as wide as they need."""
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.rjust(w) if n else c.ljust(w) for n, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    )


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that `share` of all are not above. nan where there are none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("nan")


def verdict(missed: Sequence[str]) -> int:
    """Says which objectives were missed, one a line; the exit status."""
    for text in missed:
        print(f"missed: {text}")
    return 1 if missed else 0
