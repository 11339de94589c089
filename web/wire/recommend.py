"""`/v1/recommend`: which model to use for a task, by what is known here: where it is, its size, its licence.

No quality was measured, and the answer says so: its `basis` is `no_evidence`. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from engine.catalog import Catalog, ModelSpec
from engine.requests import OutputType
from engine.requests import Task as Does
from web.errors import NotFound

_OPEN = frozenset({"Apache-2.0", "MIT", "BSD-3-Clause", "BSD-2-Clause", "CC-BY-4.0", "CC0-1.0"})
"""Licences that let anybody use the weights for anything."""
_CLASSIFIERS = frozenset({"text_classifier", "zero_shot", "gliclass"})
_SPOTTERS = frozenset({"object_detector", "open_vocabulary_detector"})


class RecommendBody(Struct):
    """`target_language` is taken and changes nothing: entries do not say which languages they know."""

    task: str
    target_language: str | None = None


class Choice(Struct):
    """`weights_bytes` is null where its weights were not made of their source yet."""

    intent: Literal["fast", "best"]
    model: str
    runtime_id: str
    profile: str
    alias: str | None
    available: bool
    quality_ref: str | None
    performance_ref: str | None
    measurement_status: str | None
    evidence_guarded: bool
    resident: bool
    weights_bytes: int | None
    licence: str


class Recommended(Struct, omit_defaults=True):
    """`fast` answers soonest, `best` is the largest. Neither where nothing for the task runs here."""

    task: str
    label: str
    basis: str
    shared_benchmarks: list[str]
    fast: Choice | None = None
    best: Choice | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """What a task is called, and which entries do it."""

    label: str
    fits: Callable[[ModelSpec], bool]


@dataclass(frozen=True, slots=True)
class Known:
    """Of an entry that runs here."""

    spec: ModelSpec
    resident: bool
    weights_bytes: int | None


def _encodes(output: OutputType, kind: str) -> Callable[[ModelSpec], bool]:
    return lambda spec: (
        Does.ENCODE in spec.tasks and kind in spec.inputs and output in (spec.outputs or (OutputType.DENSE,))
    )


def _extracts(kind: str) -> Callable[[ModelSpec], bool]:
    return lambda spec: Does.EXTRACT in spec.tasks and kind in spec.inputs


TASKS: Mapping[str, Kind] = {
    "embed": Kind("Texts to vectors", _encodes(OutputType.DENSE, "text")),
    "sparse": Kind("Texts to sparse vectors", _encodes(OutputType.SPARSE, "text")),
    "multivector": Kind("Texts to a vector a token", _encodes(OutputType.MULTIVECTOR, "text")),
    "image-embed": Kind("Images to vectors", _encodes(OutputType.DENSE, "image")),
    "rerank": Kind("Passages by their worth for a query", lambda spec: Does.SCORE in spec.tasks),
    "classify": Kind("Classes of texts", lambda spec: spec.family in _CLASSIFIERS),
    "extract": Kind(
        "Entities in texts", lambda spec: _extracts("text")(spec) and spec.family not in _CLASSIFIERS
    ),
    "detect": Kind("Objects in images", lambda spec: spec.family in _SPOTTERS),
    "image": Kind(
        "Text, classes or descriptions of images",
        lambda spec: _extracts("image")(spec) and spec.family not in _SPOTTERS,
    ),
    "document": Kind("Documents to Markdown", _extracts("document")),
    "transcribe": Kind("Recordings to text", _extracts("audio")),
    "generate": Kind("Text from a prompt", lambda spec: Does.GENERATE in spec.tasks),
}
_ALSO = {
    "encode": "embed",
    "embedding": "embed",
    "embeddings": "embed",
    "score": "rerank",
    "chat": "generate",
    "classification": "classify",
    "ocr": "document",
    "transcription": "transcribe",
}


def task(said: str) -> str:
    """Its name in `TASKS`. Raises NotFound with all of them."""
    name = _ALSO.get(said.strip().lower(), said.strip().lower())
    if name not in TASKS:
        raise NotFound(f"There is no task {said[:100]!r} to recommend for; there are {', '.join(TASKS)}.")
    return name


def answer(name: str, catalog: Catalog, known: Sequence[Known]) -> dict[str, Any]:
    """As `Recommended`. `known`: what runs here and does the task, in the catalogue's order."""
    picks: dict[str, Known] = {}
    if known:
        picks["fast"] = min(known, key=lambda k: (not _open(k), not k.resident, k.weights_bytes or math.inf))
        picks["best"] = min(known, key=lambda k: (not _open(k), -(k.weights_bytes or 0), not k.resident))
    return {
        "task": name,
        "label": TASKS[name].label,
        "basis": "no_evidence",
        "shared_benchmarks": [],
        **{intent: _choice(intent, pick, catalog) for intent, pick in picks.items()},
    }


def fitting(name: str, specs: Iterable[ModelSpec]) -> list[ModelSpec]:
    return [spec for spec in specs if TASKS[name].fits(spec)]


def _open(known: Known) -> bool:
    return known.spec.licence in _OPEN


def _choice(intent: str, pick: Known, catalog: Catalog) -> dict[str, Any]:
    spec = pick.spec
    return {
        "intent": intent,
        "model": spec.id,
        "runtime_id": spec.unit(),
        "profile": "default",
        "alias": next((alias for alias, to in sorted(catalog.aliases.items()) if to == spec.id), None),
        "available": True,
        "quality_ref": None,
        "performance_ref": None,
        "measurement_status": None,
        "evidence_guarded": False,
        "resident": pick.resident,
        "weights_bytes": pick.weights_bytes,
        "licence": spec.licence,
    }
