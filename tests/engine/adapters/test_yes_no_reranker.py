from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.torch import save_file

from engine.adapters.forward import weights
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import Item, Overflow, ScoreOptions, Task
from tests.engine.adapters.tiny_texts import GQA, TEXTS, WORDS, Served, saved

TEMPLATE = "w7 : {instruction} w3 : {query} w2 : {document} ? w5"
QUERY = "w1 w9 w4"
FAMILIES = {
    "qwen3": lambda: tf.Qwen3Config(**GQA),
    "mistral": lambda: tf.MistralConfig(**GQA, sliding_window=6),
    "gemma": lambda: tf.GemmaConfig(**GQA),
    "llama": lambda: tf.LlamaConfig(**GQA),
}


def served(path: Path, **given: Any) -> Served:
    options = {"template": TEMPLATE} | given.pop("options", {})
    fields = {"family": "yes_no_reranker", "tasks": (Task.SCORE,), "prompts": {"instruction": "w6"}}
    return Served(path, **(fields | given), options=options)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(FAMILIES["qwen3"](), tmp_path_factory.mktemp("qwen"), tf.AutoModelForCausalLM, ends="$A")


def ids_of(text: str) -> list[int]:
    filled = TEMPLATE.format(instruction="w6", query=QUERY, document=text)
    return [WORDS.index(word) for word in filled.split()]


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("answers", [("yes", "no"), ("yes", None)])
def test_the_score_is_that_of_the_next_word(
    family: str, answers: tuple[str, str | None], tmp_path: Path, compared: Callable[..., None]
):
    path = saved(FAMILIES[family](), tmp_path, tf.AutoModelForCausalLM, ends="$A")
    model = tf.AutoModelForCausalLM.from_pretrained(path).eval()
    named = {"yes": answers[0]} | ({"no": answers[1]} if answers[1] else {})
    expected = []
    for text in TEXTS:
        with torch.inference_mode():
            last = model(torch.tensor([ids_of(text)])).logits[0, -1]
        yes, no = last[WORDS.index("yes")], last[WORDS.index("no")] if answers[1] else 0.0
        expected.append(float(yes - no))

    reranker = served(path, options=named)
    scores = reranker.score(QUERY, TEXTS)
    alone = [reranker.score(QUERY, [text])[0] for text in TEXTS]
    back = reranker.score(QUERY, TEXTS[::-1])[::-1]

    assert np.abs(np.array(scores) - expected).max() <= 1e-4
    assert np.abs(np.array(scores) - alone).max() <= 1e-5
    assert np.abs(np.array(scores) - back).max() <= 1e-5
    name = f"tiny {family}, {' less '.join(filter(None, answers))}"
    compared("yes_no_reranker", name, "transformers", scores, expected, alone)


def test_sigmoid_of_the_difference_is_the_chance_of_yes_among_the_two(qwen: Path):
    raw, bounded = (served(qwen).score(QUERY, TEXTS, activation=a) for a in ("raw", "sigmoid"))

    assert bounded == pytest.approx([1 / (1 + np.exp(-score)) for score in raw], abs=1e-6)
    with pytest.raises(InvalidInput, match="raw, sigmoid"):
        served(qwen).score(QUERY, TEXTS, activation="softmax")


def test_only_passages_are_cut_and_the_template_is_whole(qwen: Path):
    reranker = served(qwen, max_tokens=20)

    (short,), (long,) = reranker.matches(QUERY, ["w1"]), reranker.matches(QUERY, ["w8 " * 60])

    whole = [
        WORDS.index(word)
        for word in TEMPLATE.format(instruction="w6", query=QUERY, document="|").partition(" |")[0].split()
    ]
    end = [WORDS.index("?"), WORDS.index("w5")]
    assert short.payload.ids.tolist() == [*whole, WORDS.index("w1"), *end]
    assert long.payload.ids.tolist() == [*whole, *[WORDS.index("w8")] * 8, *end]
    assert (long.cost, long.usage.truncated, short.usage.truncated) == (20, 1, 0)
    with pytest.raises(InputTooLong, match=r"the query is .* leaves no room"):
        reranker.matches("w1 " * 11, ["w1"])
    (refused,) = reranker.matches(QUERY, ["w8 " * 60], overflow=Overflow.ERROR)
    assert isinstance(refused, InputTooLong)


def test_a_requests_instruction_takes_the_place_of_the_entrys(qwen: Path):
    (own,) = served(qwen).matches(QUERY, ["w1"])
    (asked,) = served(qwen).matches(QUERY, ["w1"], instruction="w50 {document}")

    assert own.payload.ids[2] == WORDS.index("w6")
    assert asked.payload.ids[2] == WORDS.index("w50")


def test_bad_passages_are_named(qwen: Path):
    items = [Item(text="w1"), Item(), Item(text="\ud800")]

    found = served(qwen).preparer.prepare(Task.SCORE, items, ScoreOptions(query=Item(text="w1")))

    assert [e.item if isinstance(e, EngineError) else None for e in found] == [None, 1, 2]
    with pytest.raises(InvalidInput, match="the query"):
        served(qwen).preparer.prepare(Task.SCORE, items, ScoreOptions())


def test_an_output_layer_of_its_own_is_used(tmp_path: Path):
    config = tf.LlamaConfig(**GQA, tie_word_embeddings=False)
    path = saved(config, tmp_path, tf.AutoModelForCausalLM, ends="$A")
    before = served(path).score(QUERY, TEXTS)
    tensors = weights.read(weights.stored_tensors(path))
    tensors["lm_head.weight"] = -tensors["lm_head.weight"]
    save_file(tensors, path / "model.safetensors", {"format": "pt"})

    assert served(path).score(QUERY, TEXTS) == pytest.approx([-score for score in before], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"template": "{query}"}, "holds {query}, then {document}"),
        ({"template": ["{document}", "{query}"]}, "holds {query}, then {document}"),
        ({"yes": "yes no"}, "2 tokens"),
        ({"no": "no"}, "names the one for yes too"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused(options: dict[str, str], said: str, qwen: Path):
    with pytest.raises(weights.BadWeights, match=said):
        served(qwen, options=options)
