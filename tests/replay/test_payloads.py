"""Payloads that are made up cost what the recorded ones did, as the model's own tokenizer counts."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from tokenizers import Tokenizer

from engine import catalog
from engine.adapters.family import family
from engine.requests import Item, Task
from replay.media import document, picture
from replay.payloads import Line, Maker, item_of, line_of, request_of
from replay.trace import BadTrace, Kind, Trace
from replay.words import text
from tests import weights
from tests.simulation import model

STARTERS = [
    "sentence-transformers/all-MiniLM-L6-v2",
    "intfloat/multilingual-e5-small",
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    "cross-encoder/ms-marco-MiniLM-L-12-v2",
    "serai/splade-tiny-msmarco",
]


@pytest.mark.parametrize("name", STARTERS)
def test_a_text_has_as_many_tokens_as_it_should_within_a_few_percent(name):
    tokenizer = Tokenizer.from_file(str(weights.weights(name) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    rng = random.Random(1)
    for count in (20, 100, 400):
        found = np.mean(
            [len(tokenizer.encode(text(count, rng), add_special_tokens=False).ids) for _ in range(20)]
        )
        assert found == pytest.approx(count, rel=0.04), count


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", STARTERS)
async def test_a_request_costs_what_the_recorded_one_did(name):
    """By the model's own preparer: special tokens, a query beside, whatever there is."""
    spec = catalog.load([weights.CATALOG]).models[name]
    preparer = family(spec.family).preparer(spec, weights.weights(name))
    task = spec.tasks[0]

    async def estimate(request):
        prepared = preparer.prepare(request.task, request.items, request.options)
        return tuple(each.cost for each in prepared)

    line = await line_of(spec, task, estimate)
    assert line.seen
    rng = random.Random(2)
    for cost in (40, 120, 240):
        costs = []
        for _ in range(20):
            made = request_of(spec, task, (item_of(spec, line.size(cost), rng),), 8, rng, id="q")
            costs += await estimate(made)
        assert np.mean(costs) == pytest.approx(cost, rel=0.05), cost


def trace(**fields) -> Trace:
    given = {"models": ["a", "a", "a"], "input_size": [5, 0, 900], "output_size": [0, 0, 0]}
    return Trace.of("t", [0.0, 1.0, 2.0], **(given | fields))


def test_each_request_is_its_own_and_the_same_seed_makes_the_same():
    spec = model("a", max_tokens=512)
    first, again, other = (Maker(trace(), [spec], seed) for seed in (1, 1, 2))

    texts = [first(row).request.items[0].text for row in range(3)]
    assert [len(t.split()) for t in texts] == [5, 452, 512]  # unknown: as the others are; too long: cut
    assert texts == [again(row).request.items[0].text for row in range(3)]
    assert texts[0] != other(0).request.items[0].text
    assert "1 inputs are cut to what their model takes" in first.notes


def test_a_recorded_shape_is_made_again_item_by_item():
    kinds = (Kind("encode", (3, 7), deadline=2.0, principal="p"),)
    known = trace().told(
        service_class=np.array([0, 1, 2], dtype=np.int8),
        kind=np.array([0, 0, -1]),
        kinds=kinds,
        started=0.0,
        notes=(),
    )
    call = Maker(known, [model("a")], 0, {0: Line(1.0, 2.0, True)})(0)

    assert [len(item.text.split()) for item in call.request.items] == [1, 5]
    assert (call.deadline, call.request.principal, int(call.request.service_class)) == (2.0, "p", 0)


def test_what_was_recorded_with_its_content_is_sent_as_it_was():
    had = request_of(model("a"), Task.ENCODE, (Item(text="as it was"),), 0, random.Random(0), id="old")
    maker = Maker(trace(), [model("a")], 0, kept={1: had})

    assert maker(1).request.items[0].text == "as it was" and maker(1).request.id == "replay-1"
    assert maker(0).request.items[0].text != "as it was"
    assert "payloads are as they were recorded where that was kept" in maker.notes[-1]


def test_pictures_and_documents_have_the_size_that_is_asked_for():
    import io

    import pypdfium2
    from PIL import Image

    width, height = Image.open(io.BytesIO(picture(500_000))).size
    assert width * height == pytest.approx(500_000, rel=0.01)
    with pypdfium2.PdfDocument(document(7)) as found:
        assert len(found) == 7
    assert Counter(document(2).split())[b"/Page"] == 2


def test_what_cannot_be_made_up_says_so():
    with pytest.raises(BadTrace, match="reads audio"):
        item_of(model("a", inputs=["audio"]), 5, random.Random(0))
