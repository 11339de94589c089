"""Labels and thresholds at their bounds, with every kind of model that takes any labels: an answer for each
text, in order, or a typed refusal.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

from engine.adapters.family import Prepared, family
from engine.entry import ModelSpec, Source
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.execution import execute
from engine.requests import Extracted, ExtractOptions, Item, Task
from tests.engine.adapters.tiny_tokenizer import tokenizer
from tests.simulation import device

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tests.engine.adapters import tiny_gliner, tiny_gliner2
    from tests.engine.adapters.test_zero_shot import CONFIGS, MARKS, NLI

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
TEXTS = ("the word on the person", "a place")


def _zero_shot(path: Path) -> Path:
    tokenizer(path)
    made, size = CONFIGS["bert"]
    words = len(tf.AutoTokenizer.from_pretrained(path))
    model = tf.AutoModelForSequenceClassification.from_config(made(vocab_size=words, **(MARKS | size | NLI)))
    model.save_pretrained(path)
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "gliner": tiny_gliner.planted,
    "gliner2": tiny_gliner2.planted,
    "zero_shot": _zero_shot,
}
LABELS: dict[str, Sequence[str]] = {
    "none": (),
    "one": ("person",),
    "twice the same": ("person", "place", "person"),
    "200": [f"label {n}" for n in range(200)],
    "1,000": [f"label {n}" for n in range(1000)],
    "empty": ("person", ""),
    "blank": (" ",),
    "half a pair": ("\ud800",),
    "very long": ("word " * 400,),
    "longer": ("word " * 200_000,),
    "marks of the prompt": ("[SEP] <<ENT>> [MASK]", "<<SEP>>", "[E] [P] (("),
    "nul": ("\0", "a\0b"),
}
REFUSED = {
    "none",
    "200",
    "1,000",
    "empty",
    "blank",
    "half a pair",
    "very long",
    "longer",
    "marks of the prompt",
}


@pytest.fixture(scope="module", params=MAKERS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The preparer and the model."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = MAKERS[request.param](tmp_path_factory.mktemp(request.param))
    fields = {"id": "a/b", "family": request.param, "tasks": ("extract",), "devices": ("cpu",)}
    spec = ModelSpec(**fields, sources=(Source(directory=str(path)),))
    made = family(request.param)
    return made.preparer(spec, path), made.load(spec, path, "cpu")


def asked(both: tuple[Any, Any], options: ExtractOptions) -> list[Any]:
    """What comes of each text; refusals among them, and one for all where all were refused."""
    preparer, model = both
    try:
        prepared = preparer.prepare(Task.EXTRACT, [Item(text=text) for text in TEXTS], options)
    except EngineError as error:
        return [error] * len(TEXTS)
    good = [each for each in prepared if isinstance(each, Prepared)]
    run = iter(execute(model, good, device()).outputs)
    return [next(run) if isinstance(each, Prepared) else each for each in prepared]


@pytest.mark.parametrize("name", LABELS)
def test_any_labels_are_looked_for_or_refused(both: tuple[Any, Any], name: str) -> None:
    for found in asked(both, ExtractOptions(labels=tuple(LABELS[name]), threshold=0.0)):
        if name in REFUSED and isinstance(found, InvalidInput | InputTooLong):
            assert 0 < len(found.message) < 1000
            continue
        assert isinstance(found, Extracted), found
        said = {each.label for each in (*(found.entities or ()), *(found.classifications or ()))}
        assert said <= {*LABELS[name]}


@pytest.mark.parametrize("threshold", [0, 1, 1.0])
def test_thresholds_at_their_bounds_are_kept_to(both: tuple[Any, Any], threshold: float) -> None:
    for found in asked(both, ExtractOptions(labels=("person", "place"), threshold=threshold)):
        assert isinstance(found, Extracted), found
        scores = [each.score for each in (*(found.entities or ()), *(found.classifications or ()))]
        assert all(threshold <= score <= 1 for score in scores)


@pytest.mark.parametrize("threshold", [1.01, -0.1, float("nan"), True])
def test_thresholds_beyond_them_are_refused(both: tuple[Any, Any], threshold: float) -> None:
    for found in asked(both, ExtractOptions(labels=("person",), threshold=threshold)):
        assert isinstance(found, InvalidInput), found
