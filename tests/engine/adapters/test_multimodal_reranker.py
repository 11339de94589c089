"""A Qwen3-VL of a few thousand random weights judges as transformers' own model does of the same question.

The reference runs one question at a time and compares its two next words; the question is written here as the
published `qwen3_vl_reranker.py` does. That script was not run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

from engine.adapters.vision.processors import reference_of
from engine.errors import InputTooLong, InvalidInput
from engine.requests import Item, Media, Overflow, ScoreOptions, Task
from tests.engine.adapters.test_multimodal_encoder import ITEMS, SHOWN, qwen3_vl
from tests.engine.adapters.tiny_texts import Served

USUAL = "Given a search query, retrieve relevant candidates that answer the query."
PICTURE = 5
"""Of ITEMS, one that is an image alone."""


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qwen3_vl(tmp_path_factory.mktemp("judge"), tied=request.param, words=("yes", "no"))


def served(path: Path, **given: Any) -> Served:
    fields = {"family": "multimodal_reranker", "tasks": (Task.SCORE,), "inputs": ("text", "image")}
    return Served(path, **(fields | {"max_tokens": 600} | given))


def asked(model: Served, query: Item, items: list[Item], **options: Any) -> list[Any]:
    return list(model.preparer.prepare(Task.SCORE, items, ScoreOptions(query=query, **options)))


@torch.inference_mode()
def expected(path: Path, query: int, instruction: str) -> list[float]:
    model = tf.AutoModelForImageTextToText.from_pretrained(path).eval()
    images, tokenizer = reference_of(path), tf.AutoTokenizer.from_pretrained(path)
    yes, no, pad = (tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no", "<|image_pad|>"))
    scores = []
    for item, shown in zip(ITEMS, SHOWN, strict=True):
        every = [*SHOWN[query], *shown]
        seen = images(images=every, return_tensors="pt") if every else {}
        places = [
            "<|vision_start|>" + "<|image_pad|>" * int(grid.prod() // 4) + "<|vision_end|>"
            for grid in seen.get("image_grid_thw", ())
        ]
        first = len(SHOWN[query])
        judge = (
            "Judge whether the Document meets the requirements based on the Query and the Instruct "
            'provided. Note that the answer can only be "yes" or "no".'
        )
        text = (
            f"<|im_start|>system\n{judge}<|im_end|>\n<|im_start|>user\n"
            f"<Instruct>: {instruction}<Query>:{''.join(places[:first])}{ITEMS[query].text or ''}\n"
            f"<Document>:{''.join(places[first:])}{item.text or ''}<|im_end|>\n<|im_start|>assistant\n"
        )
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        logits = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), mm_token_type_ids=(ids == pad).int(), **seen
        ).logits[0, -1]
        scores.append(float(logits[yes] - logits[no]))
    return scores


def test_texts_and_images_are_judged_as_by_transformers(path: Path, compared: Callable[..., None]):
    model = served(path)
    for query, instruction in ((0, None), (PICTURE, "Find floods")):
        jobs = asked(model, ITEMS[query], ITEMS, instruction=instruction)

        found = [output.score for output in model.model.run(jobs)]
        alone = [model.model.run([job])[0].score for job in jobs]

        theirs = expected(path, query, instruction or USUAL)
        assert found == pytest.approx(theirs, abs=1e-4)
        assert found == pytest.approx(alone, abs=1e-5)
    rows = [[[score] for score in scores] for scores in (found, theirs, alone)]
    compared("multimodal_reranker", "tiny qwen3_vl", "transformers", *rows)


def test_a_documents_text_is_cut_and_never_the_query(path: Path):
    model = served(path, max_tokens=420)
    long = Item(text="x" * 400)

    (cut,) = asked(model, ITEMS[1], [long])
    (error,) = asked(model, ITEMS[1], [long], overflow=Overflow.ERROR)
    (full,) = asked(model, long, [ITEMS[0]])

    assert len(cut.payload.message.ids) == 420 and cut.usage.truncated == 1
    assert isinstance(error, InputTooLong) and isinstance(full, InputTooLong)


def test_a_damaged_image_and_a_query_of_nothing_are_said(path: Path):
    model = served(path)
    damaged = Item(images=(Media(ITEMS[PICTURE].images[0].data[:200]),))

    first, bad = model.model.run(asked(model, ITEMS[0], [ITEMS[1], damaged]))

    assert isinstance(bad, InvalidInput) and isinstance(first.score, float)
    with pytest.raises(InvalidInput, match="the query has no text"):
        asked(model, Item(), [ITEMS[0]])
    (chance,) = model.model.run(asked(model, ITEMS[0], [ITEMS[1]], activation="sigmoid"))
    assert chance.score == pytest.approx(1 / (1 + math.exp(-first.score)), abs=1e-6)
