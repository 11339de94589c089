"""Generating models of tests: run to their end by quanta, and what they answered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from engine.adapters.family import GenerativeModel, Prepared, Progressed
from engine.requests import Generated


def run(
    model: GenerativeModel, *joining: Mapping[str, Prepared], seconds: float = 0.0
) -> dict[str, list[Progressed]]:
    """One quantum for each of `joining`, then more until nothing runs: what each said of every sequence."""
    said: defaultdict[str, list[Progressed]] = defaultdict(list)
    waiting = list(joining)
    while waiting or any(rest[-1].done is None for rest in said.values()):
        for job, progressed in model.advance(waiting.pop(0) if waiting else {}, (), seconds).items():
            said[job].append(progressed)
    assert model.advance({}, (), seconds) == {}
    return said


def answer(said: list[Progressed]) -> Generated:
    """The whole answer, which is also what its pieces come to."""
    done = said[-1].done
    assert isinstance(done, Generated), done
    assert "".join(progressed.text for progressed in said) == done.text
    assert sum(progressed.tokens for progressed in said) == len(done.token_ids)
    assert {progressed.done for progressed in said[:-1]} <= {None}
    return done
