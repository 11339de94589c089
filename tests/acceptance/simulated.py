"""A real server whose models compute nothing: each fails in the way that its name says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.acceptance.serving import Server, serving

ENCODER, RERANKER, READER, WRITER = "sim/encoder", "sim/reranker", "sim/reader", "sim/writer"
BROKEN, STALLED, GREEDY, HUGE = "sim/broken", "sim/stalled", "sim/greedy", "sim/huge"
SLOW = "sim/slow"
"""One input at a time, fifty a second."""
QUICK = {"load_seconds": 0.05}

MODELS: Mapping[str, dict[str, Any]] = {
    ENCODER: {"tasks": ["encode"], "options": QUICK},
    RERANKER: {"tasks": ["score"], "options": QUICK},
    READER: {"tasks": ["extract"], "options": QUICK},
    WRITER: {"tasks": ["generate"], "max_tokens": 4096, "options": {**QUICK, "seconds_per_batch": 0.01}},
    SLOW: {
        "tasks": ["encode"],
        "options": {**QUICK, "seconds_per_batch": 0.02},
        "limits": {"max_slots": 1, "max_batch_jobs": 1},
    },
    BROKEN: {"tasks": ["encode"], "options": {**QUICK, "load_error": "the weights are torn"}},
    STALLED: {"tasks": ["encode"], "options": {"load_seconds": 3600}},
    GREEDY: {"tasks": ["encode"], "options": {**QUICK, "out_of_memory_above": 4}},
    HUGE: {"tasks": ["encode"], "options": {**QUICK, "weights_bytes": 2**40}},
}


def _entry(name: str, said: dict[str, Any], weights: Path) -> dict[str, Any]:
    vectors = {"outputs": ["dense"], "dims": {"dense": 8}} if "encode" in said["tasks"] else {}
    common = {
        "id": name,
        "family": "simulated",
        "devices": ["simulated"],
        "sources": [{"directory": str(weights)}],
    }
    return common | vectors | said


@contextmanager
def simulated(place: Path, **settings: object) -> Iterator[Server]:
    """With a CPU beside, for documents; `serving` says the rest."""
    catalogue, weights = place / "catalogue", place / "weights"
    for folder in (catalogue, weights):
        folder.mkdir(parents=True, exist_ok=True)
    (weights / "model.safetensors").touch()
    entries = {"models": [_entry(name, said, weights) for name, said in MODELS.items()]}
    (catalogue / "simulated.yaml").write_text(yaml.safe_dump(entries), "utf-8")
    chosen = {"devices": "simulated:a,cpu", "catalog": catalogue, "catalog_watch": "no", "max_hold": "2s"}
    with serving(place, **{**chosen, **settings}) as server:
        server.until(lambda: _answers(server), step=0.2)
        yield server


def _answers(server: Server) -> bool:
    """A load waits until the libraries of every family were imported, which goes on after the start."""
    return server.http.post(f"/v1/encode/{ENCODER}", json={"items": [{"text": "a"}]}).status_code == 200
