"""Labels, thresholds and options at their bounds and beyond, with a model of every family that extracts: an
answer for each item, in order, or a typed refusal.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.adapters.family import Prepared
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.execution import execute
from engine.requests import Extracted, ExtractOptions, Task
from tests.engine.adapters.extracting import Extracting
from tests.engine.adapters.extractors import EXTRACTORS
from tests.simulation import device

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
Labels = dict[str, tuple[Any, ...]]
ANSWERED: Labels = {"one": ("cat",), "twice the same": ("cat", "dog", "cat")}
EITHER: Labels = {
    "none": (),
    "200": tuple(f"dog {n}" for n in range(200)),
    "1,001": tuple(f"dog {n}" for n in range(1001)),
    "nul and marks of prompts": ("\0", "a\0b", "[SEP] <<ENT>> [MASK]", "<<SEP>>", "[E] [P] (("),
    "very long": ("word " * 400,),
    "of many tokens": ("\u4e00" * 1999,),
}
REFUSED: Labels = {
    "empty": ("cat", ""),
    "blank": (" ",),
    "white space": ("\t\n ",),
    "half a pair": ("\ud800",),
    "a number": (1,),
    "nothing": (None,),
    "bytes": (b"cat",),
    "a list": (["cat"],),
    "longer": ("word " * 200_000,),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "thresholds that are none": {"thresholds": [0.5]},
    "thresholds beyond": {"thresholds": {"cat": 1.01}},
    "thresholds of no number": {"thresholds": {"cat": math.nan}},
    "thresholds as texts": {"thresholds": {"cat": "0.5"}},
    "thresholds without end": {"thresholds": {"cat": 10**5000}},
    "a flag that is none": {"flat_ner": 1, "multi_label": "yes", "merge_adjacent": 0, "spans": []},
    "relations that are none": {"relations": 5, "relation_threshold": 2},
    "relations of nothing": {"relations": [None]},
    "classes that are none": {"classifications": ["a"]},
    "a template without a place": {"hypothesis_template": "this", "template": "that"},
    "a template that is none": {"hypothesis_template": 5, "template": {}},
    "too many of the best": {"top_k": 10**30},
}


@pytest.fixture(scope="module", params=EXTRACTORS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Extracting:
    return EXTRACTORS[kind].made(tmp_path_factory.mktemp("extractor"))


@pytest.fixture(scope="module")
def relations(tmp_path_factory: pytest.TempPathFactory) -> Extracting:
    return EXTRACTORS["glirel"].made(tmp_path_factory.mktemp("glirel"))


def prepared(model: Extracting, kind: str, **options: Any) -> list[Any]:
    """What becomes of each item before it runs; one refusal for all where the request was refused."""
    items = EXTRACTORS[kind].items()
    try:
        return model.preparer.prepare(Task.EXTRACT, items, ExtractOptions(**options))
    except EngineError as error:
        return [error] * len(items)


def asked(model: Extracting, kind: str, **options: Any) -> list[Any]:
    """What comes of each item; refusals among them."""
    found = prepared(model, kind, **options)
    good = [each for each in found if isinstance(each, Prepared)]
    run = iter(execute(model.model, good, device()).outputs if good else ())
    return [next(run) if isinstance(each, Prepared) else each for each in found]


def refused(found: Any) -> bool:
    return isinstance(found, InvalidInput | InputTooLong) and 0 < len(found.message) < 2000


def said(found: Extracted) -> list[tuple[str, float]]:
    kinds = (found.entities, found.classifications, found.objects, found.relations)
    parts = [part for each in kinds for part in each or ()]
    return [(getattr(part, "label", None) or part.relation, part.score) for part in parts if _judged(part)]


def _judged(part: Any) -> bool:
    """GLiREL gives back the entities that came, under no label."""
    return getattr(part, "label", "relation") != ""


def test_labels_are_looked_for_each_once(kind: str, model: Extracting) -> None:
    for name, labels in ANSWERED.items():
        for found in asked(model, kind, labels=labels, threshold=0.0):
            if EXTRACTORS[kind].closed and refused(found):
                continue  # its own labels are others
            assert isinstance(found, Extracted), name
            told = [label for label, _ in said(found)]
            assert {*told} <= {*labels}, name
            if found.classifications:
                assert len(told) == len({*labels}), name


@pytest.mark.parametrize("name", EITHER)
def test_labels_at_the_bounds_are_looked_for_or_refused(name: str, kind: str, model: Extracting) -> None:
    for found in asked(model, kind, labels=EITHER[name]):
        assert refused(found) or isinstance(found, Extracted)
        if isinstance(found, Extracted) and EITHER[name]:
            assert {label for label, _ in said(found)} <= {*EITHER[name]}


def test_what_is_no_label_is_refused(kind: str, model: Extracting) -> None:
    for name, labels in REFUSED.items():
        assert all(refused(found) for found in prepared(model, kind, labels=labels)), name


def test_thresholds_at_their_bounds_are_kept_to(kind: str, model: Extracting) -> None:
    labels = () if EXTRACTORS[kind].closed else ("cat", "dog")

    for threshold in (0, 1.0):
        for found in asked(model, kind, labels=labels, threshold=threshold):
            assert isinstance(found, Extracted), found
            if kind != "spacy_ner":  # it gives no scores
                assert all(threshold <= score <= 1 for _, score in said(found))


def test_thresholds_beyond_them_are_refused(kind: str, model: Extracting) -> None:
    labels = () if EXTRACTORS[kind].closed else ("cat",)

    for threshold in (1.01, -0.1, -math.inf, math.inf, math.nan, True, 10**5000):
        assert all(refused(each) for each in prepared(model, kind, labels=labels, threshold=threshold))


def test_options_that_make_no_sense_are_refused_or_not_known(kind: str, model: Extracting) -> None:
    labels = () if EXTRACTORS[kind].closed else ("cat",)

    for name, extra in OPTIONS.items():
        for found in prepared(model, kind, labels=labels, extra=extra):
            assert refused(found) or isinstance(found, Prepared), name


@pytest.mark.parametrize(
    "wrong",
    [
        {"score": 1.01},
        {"score": -1},
        {"score": math.nan},
        {"score": True},
        {"score": 10**400},
        {"score": "0.5"},
        {"label": 5},
        {"label": ["cat"]},
        {"label": "\ud800"},
        {"label": "x" * 3000},
        {"start": 10**400},
        {"start": 0.0},
        {"end": None},
    ],
    ids=lambda wrong: str(*wrong),
)
def test_entities_that_come_with_an_item_are_as_strict(wrong: dict[str, Any], relations: Extracting) -> None:
    given = {"start": 0, "end": 1, "score": 0.5, "label": "person"}
    item, good = EXTRACTORS["glirel"].items()
    odd = type(item)(text=item.text, metadata={"entities": [given, given | wrong]})

    first, second = relations.jobs([odd, good], ("knows",))

    assert refused(first)
    assert isinstance(second, Prepared)
