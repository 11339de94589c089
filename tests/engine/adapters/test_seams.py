"""Entities in texts of several windows, by every family that reads in windows: found once and whole wherever
they stand.

The models' weights are set so that they find what is planted, and nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.adapters.preparing.windows import Span
from tests.engine.adapters.extracting import Extracting

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tests.engine.adapters import tiny_gliner, tiny_gliner2, tiny_tagger

MAKERS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "gliner, spans": ("gliner", tiny_gliner.planted),
    "gliner, tokens": ("gliner", lambda path: tiny_gliner.planted(path, "token")),
    "gliner, labels apart": ("gliner", lambda path: tiny_gliner.planted(path, "bi")),
    "gliner2": ("gliner2", tiny_gliner2.planted),
    "token classifier": ("token_classifier", tiny_tagger.planted),
}
ANY_LENGTH = ("gliner, tokens", "token classifier")
"""Families whose spans may be longer than what two windows share."""
LABELS = ("person", "place")
COUNT = 160
"""Words in two windows of some hundred."""


class Finder(Extracting):
    """One kind of model, and how it says what it finds."""

    def __init__(self, kind: str, name: str, path: Path, **entry: Any) -> None:
        super().__init__(name, path, **entry)
        self.kind = kind
        self.labels = ("person",) if name == "gliner2" else LABELS
        """GLiNER2's planted model finds the same for every label."""

    def found(self, texts: list[str], *labels: str, **options: Any) -> list[list[tuple[str, str]]]:
        """Labels and texts, after what is said of their places was checked."""
        answers = self.answers(texts, labels or self.labels, **options)
        for text, answer in zip(texts, answers, strict=True):
            assert all(text[e.start : e.end] == e.text for e in answer.entities)
        return [[(e.label, e.text) for e in answer.entities] for answer in answers]

    def windows(self, text: str) -> list[Span]:
        """What the windows of a text hold: words, or tokens that are words."""
        (job,) = self.jobs([text], self.labels)
        payload: Any = job.payload
        return list(getattr(payload, "spans", None) or [window.span for window in payload.windows])


@pytest.fixture(scope="module", params=MAKERS)
def finder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finder:
    name, make = MAKERS[request.param]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Finder(request.param, name, make(tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="module")
def short(finder: Finder) -> Finder:
    """The same model, whose windows are some hundred words."""
    other = Finder(finder.kind, finder.spec.family, finder.path, max_tokens=120)
    other.model = finder.model
    return other


def text(count: int, place: int, *entity: str) -> str:
    words = ["word"] * count
    words[place : place + len(entity)] = entity
    return " ".join(words)


def seams(finder: Finder, count: int) -> list[int]:
    """Words where windows begin and end, and where one gives over to the next."""
    held = finder.windows(text(count, 0))
    edges = {edge for a, b in pairwise(held) for edge in (a.end, b.start)}
    return sorted(edges | {(a.end + b.start) // 2 for a, b in pairwise(held)})


@pytest.mark.parametrize("place", [10, 383, 384, 389, 700, 1199])
def test_a_name_is_found_wherever_it_stands(finder: Finder, place: int) -> None:
    whole = text(1200, place, "Ulm")

    (entity,) = finder.find(whole, *finder.labels).entities or ()

    assert (entity.text, entity.start, entity.end) == ("Ulm", 5 * place, 5 * place + 3)
    assert whole[entity.start : entity.end] == "Ulm"


@pytest.mark.parametrize("entity", [("Ulm",), ("Zork", "the", "the", "Blim")])
def test_an_entity_at_a_seam_is_found_once_and_whole(short: Finder, entity: tuple[str, ...]) -> None:
    places = [edge + step for edge in seams(short, COUNT) for step in range(-len(entity), 2)]
    label = "place" if entity == ("Ulm",) and "place" in short.labels else "person"

    for found in short.found([text(COUNT, place, *entity) for place in places]):
        assert found == [(label, " ".join(entity))]


def test_entities_that_fill_a_seam_are_each_found_once(short: Finder) -> None:
    edges = seams(short, COUNT)
    whole = text(COUNT, edges[0] - 10, *["Ulm", "word"] * ((edges[-1] - edges[0]) // 2 + 10))

    (found,) = short.found([whole])

    assert len(found) == whole.split().count("Ulm")


def test_one_inside_the_other_at_a_seam_are_both_found_where_that_is_asked(short: Finder) -> None:
    if short.kind == "token classifier":
        pytest.skip("its entities never overlap")
    labels = ("person", "place") if short.kind == "gliner2" else ("person", "name")
    expected = [("person", "Zork the Blim"), (labels[1], "Zork the Blim")]
    expected = expected if short.kind == "gliner2" else [("person", "Zork the Blim"), ("name", "Zork")]
    places = [edge + step for edge in seams(short, COUNT) for step in (-3, -2, -1, 0)]
    texts = [text(COUNT, place, "Zork", "the", "Blim") for place in places]

    for found in short.found(texts, *labels, extra={"flat_ner": False}):
        assert found == expected
    for found in short.found(texts[:4], *labels, extra={"flat_ner": True}):
        assert len(found) == 1


@pytest.mark.parametrize("length", [70, 110])
def test_an_entity_longer_than_what_windows_share_is_whole_too(short: Finder, length: int) -> None:
    if short.kind not in ANY_LENGTH:
        pytest.skip("its entities have a few words at most")
    entity = ("Zork", *["the"] * (length - 2), "Blim")
    places = [edge - length // 2 + step for edge in seams(short, COUNT) for step in (-1, 0, 1)]

    for found in short.found(
        [text(COUNT, place, *entity) for place in places if 0 <= place < COUNT - length]
    ):
        assert found == [("person", " ".join(entity))]
