"""Models that extract, as their families serve them: what is asked of them, and what they find."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.adapters.family import Prepared, family
from engine.entry import ModelSpec, Source
from engine.errors import EngineError
from engine.requests import Extracted, ExtractOptions, Item, Task


def spec(name: str, path: Path, **more: Any) -> ModelSpec:
    """An entry for the directory `path` that reads long texts in windows."""
    said = {"id": "a/b", "family": name, "tasks": ("extract",), "devices": ("cpu",), "overflow": "window"}
    return ModelSpec(**(said | more), sources=(Source(directory=str(path)),))


class Extracting:
    """The directory `path` under a family; loaded when it is first run."""

    def __init__(self, name: str, path: Path, **entry: Any) -> None:
        torch.set_num_threads(1)
        self.path = path
        self.spec = spec(name, path, **entry)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.family = family(name)
            self.preparer = self.family.preparer(self.spec, path)

    @cached_property
    def model(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.family.load(self.spec, self.path, "cpu")

    def saying(self, **entry: Any) -> Extracting:
        """The same model under an entry that says more."""
        other = Extracting(self.spec.family, self.path, **entry)
        other.model = self.model
        return other

    def jobs(
        self, texts: Sequence[str | Item], labels: Sequence[str] = (), **options: Any
    ) -> list[Prepared | EngineError]:
        items = [text if isinstance(text, Item) else Item(text=text) for text in texts]
        return self.preparer.prepare(Task.EXTRACT, items, ExtractOptions(labels=tuple(labels), **options))

    def answers(self, texts: Sequence[str | Item], labels: Sequence[str] = (), **options: Any) -> list[Any]:
        return list(self.model.run(self.jobs(texts, labels, **options)))

    def find(self, text: str | Item, *labels: str, **options: Any) -> Extracted:
        return self.answers([text], labels, **options)[0]

    def with_company(self, jobs: Sequence[Prepared]) -> Iterator[tuple[Any, Any]]:
        """What each job gives among the others, and alone."""
        for together, job in zip(self.model.run(jobs), jobs, strict=True):
            yield together, self.model.run([job])[0]


def spans(answer: Extracted) -> dict[tuple[int | None, int | None, str], float]:
    """Scores of entities by place and label."""
    return {(e.start, e.end, e.label): e.score for e in answer.entities or ()}


def classes(answer: Extracted) -> dict[str, float]:
    return {c.label: c.score for c in answer.classifications or ()}


def alike(ours: Mapping[Any, float], theirs: Mapping[Any, float], atol: float = 1e-4) -> list[Any]:
    """The scores of the same things, in pairs."""
    assert ours.keys() == theirs.keys()
    assert np.allclose([ours[key] for key in ours], [theirs[key] for key in ours], atol=atol)
    return [(ours[key], theirs[key]) for key in ours]
