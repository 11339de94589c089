"""What a request or its entry says of the answers about images: thresholds, and how many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.adapters.labelling.open_labels import checked
from engine.catalog import ModelSpec
from engine.errors import InvalidInput
from engine.requests import ExtractOptions


def labels_of(spec: ModelSpec, options: ExtractOptions) -> tuple[str, ...]:
    """The request's, else the entry's, each once. Raises InvalidInput for one that is empty or no text."""
    return tuple(dict.fromkeys(map(checked, options.labels or spec.options.get("labels", ()))))


def threshold_of(spec: ModelSpec, options: ExtractOptions, default: float | None = None) -> float | None:
    """The request's, else the entry's, else `default`."""
    if options.threshold is not None:
        return options.threshold
    said = spec.options.get("threshold", default)
    return None if said is None else float(said)


def number_of(extra: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    """A whole number that the request may have sent. Raises InvalidInput when it is none, or outside."""
    value = extra.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidInput(f"options.{name} is a whole number from {least} to {most}.")
    return value


def text_of(extra: Mapping[str, Any], name: str, most: int = 10_000) -> str | None:
    """A text that the request may have sent. Raises InvalidInput when it is none, or too long."""
    value = extra.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > most:
        raise InvalidInput(f"options.{name} is a text of at most {most} characters.")
    return value


def top_of(spec: ModelSpec, extra: Mapping[str, Any], default: int | None) -> int | None:
    """How many labels are told at most; None for all."""
    return number_of(extra, "top_k", 1, 100_000) or spec.options.get("top_k", default)
