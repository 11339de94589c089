"""Comparisons with reference libraries: a line a model on the terminal, and as JSON lines for docs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from engine.catalog import ModelSpec
    from engine.sources.locate import Sources
    from engine.tuning.references import Compared


def compare_all(specs: Sequence[ModelSpec], sources: Sources, record: Path | None) -> bool:
    """Whether none failed. A model that cannot be compared is said, and is no failure."""
    passed = True
    for spec in specs:
        found = _compared(spec, sources)
        if found is None:
            continue
        passed &= found.passed
        click.echo(_line(found))
        if record is not None:
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_row(found)) + "\n")
    return passed


def _compared(spec: ModelSpec, sources: Sources) -> Compared | None:
    from engine.adapters.forward.weights import BadWeights
    from engine.errors import EngineError
    from engine.tuning.references import compare

    try:
        found = compare(spec, sources.locate(spec))
    except ImportError as error:
        click.echo(f"{spec.family:18} {spec.id}: not compared: {error.name or error} is not installed")
    except (EngineError, BadWeights) as error:
        click.echo(f"{spec.family:18} {spec.id}: not compared: {error}")
    else:
        if found is None:
            click.echo(f"{spec.family:18} {spec.id}: not compared: no reference for this family here")
        return found
    return None


def _line(found: Compared) -> str:
    far = found.apart
    how = f"difference {far.max_difference:.1e}" if far.cosine is None else f"cosine {far.cosine:.6f}"
    alone = (
        "batch equals single" if found.batch_equals_single else f"batch {found.alone.max_difference:.1e} off"
    )
    mark = "pass" if found.passed else "FAIL"
    return f"{found.family:18} {found.model}: {mark}: {found.versions}: {how}, {alone}"


def _row(found: Compared) -> dict[str, Any]:
    far = found.apart
    measure = {"max_difference": far.max_difference} if far.cosine is None else {"cosine": far.cosine}
    return {
        "model": found.model,
        "family": found.family,
        "reference": found.reference,
        "versions": found.versions,
        **measure,
        "batch_equals_single": found.batch_equals_single,
        "weights": "real",
        "date": datetime.now(UTC).date().isoformat(),
    }
