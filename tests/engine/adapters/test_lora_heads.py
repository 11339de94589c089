"""Adapters of token classifiers and of rerankers that answer yes or no give what PEFT makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from engine.adapters.family import Prepared
from engine.errors import InvalidInput
from engine.requests import ExtractOptions, Item, ScoreOptions, Task
from tests.engine.adapters import tiny_loras
from tests.engine.adapters.tiny_texts import FAMILIES, TEXTS, WORDS, entry, saved, tokenizer


class Adapted:
    """A base with adapters, driven as the engine drives it."""

    def __init__(
        self, path: Path, loras: dict[str, Path], without: tuple[str, ...] = (), **given: Any
    ) -> None:
        spec = tiny_loras.with_loras(entry(**given), loras)
        self.preparer = tiny_loras.of(spec).preparer(spec, path)
        self.model = tiny_loras.loaded(spec, path, without=without)

    def jobs(self, lora: str | None, task: Task = Task.EXTRACT) -> list[Prepared]:
        items = [Item(text=text) for text in TEXTS]
        if task is Task.SCORE:
            options: Any = ScoreOptions(query=Item(text="w1 w2"), lora=lora, activation="raw")
        else:
            options = ExtractOptions(lora=lora)
        return list(self.preparer.prepare(task, items, options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("tagger")
    config = FAMILIES["bert"]()
    config.id2label = {0: "O", 1: "X", 2: "Y"}
    auto = tf.AutoModelForTokenClassification
    base = saved(config, folder / "base", auto)
    deep = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}
    head = {"r": 4, "lora_alpha": 4, "target_modules": ["query"], "task_type": "TOKEN_CLS"}
    other = {"r": 2, "lora_alpha": 6, "target_modules": ["key"]}
    return base, {
        "deep": tiny_loras.save(base, folder / "deep", auto, 3, **deep),
        "other": tiny_loras.save(base, folder / "other", auto, 5, **other),
        "head": tiny_loras.save(base, folder / "head", auto, 4, **head),
    }


def told(output: Any) -> list[tuple[int, str, float]]:
    return [(entity.start, entity.label, entity.score) for entity in output.entities]


def alike(ours: list[tuple[int, str, float]], theirs: list[tuple[int, str, float]]) -> None:
    assert [each[:2] for each in ours] == [each[:2] for each in theirs]
    assert [each[2] for each in ours] == pytest.approx([each[2] for each in theirs], abs=1e-4)


@pytest.mark.parametrize("name", ["deep", "head"])
def test_entities_with_an_adapter_are_those_of_peft_its_own_head_included(tagger: Any, name: str):
    base, loras = tagger
    served = Adapted(base, loras, family="token_classifier", tasks=(Task.EXTRACT,))
    reference = tiny_loras.reference(base, loras[name], tf.AutoModelForTokenClassification)
    found = 0

    for text, output in zip(TEXTS, served.model.run(served.jobs(name)), strict=True):
        read = tokenizer("[CLS] $A [SEP]", True)(text, return_tensors="pt", return_offsets_mapping=True)
        offsets = read.pop("offset_mapping")[0].tolist()
        with torch.inference_mode():
            rows = reference(**read).logits[0].softmax(-1).numpy()[1:-1]
        groups: list[list[Any]] = []
        for (start, _), row in zip(offsets[1:-1], rows, strict=True):
            label = int(row.argmax())
            if groups and groups[-1][1] == label:
                groups[-1][2].append(row.max())
            else:
                groups.append([start, label, [row.max()]])
        expected = [(start, " XY"[label], float(np.mean(scores))) for start, label, scores in groups if label]
        alike(told(output), expected)
        found += len(expected)
    assert found > 5


def test_texts_of_several_adapters_are_tagged_as_alone_and_share_a_pass_where_they_can(tagger: Any):
    served = Adapted(*tagger, family="token_classifier", tasks=(Task.EXTRACT,))
    inner = served.model._model._encoder
    passes: list[int] = []
    before = inner.hidden
    inner.hidden = lambda ids, *rest, **more: passes.append(len(ids)) or before(ids, *rest, **more)
    jobs = [job for name in ("deep", None, "other", "head") for job in served.jobs(name)]

    together = served.model.run(jobs)

    assert sorted(passes) == [len(TEXTS), 3 * len(TEXTS)]
    for one, job in zip(together, jobs, strict=True):
        alike(told(one), told(served.model.run([job])[0]))


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("reranker")
    auto = tf.AutoModelForCausalLM
    base = saved(FAMILIES["qwen3"](), folder / "base", auto, "$A")
    deep = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}
    other = {"r": 2, "lora_alpha": 8, "target_modules": ["k_proj"]}
    head = {"r": 2, "lora_alpha": 8, "target_modules": ["lm_head"]}
    return base, {
        "deep": tiny_loras.save(base, folder / "deep", auto, 3, **deep),
        "other": tiny_loras.save(base, folder / "other", auto, 4, **other),
        "head": tiny_loras.save(base, folder / "head", auto, 5, **head),
    }


def test_scores_with_an_adapter_are_those_of_peft_in_a_mixed_batch_and_alone(reranker: Any):
    base, loras = reranker
    options = {"template": "{query} ! {document} ?", "yes": "yes", "no": "no"}
    served = Adapted(base, loras, ("head",), family="yes_no_reranker", tasks=(Task.SCORE,), options=options)
    jobs = [job for name in ("deep", None, "other") for job in served.jobs(name, Task.SCORE)]

    scores = [output.score for output in served.model.run(jobs)]

    assert scores == pytest.approx([served.model.run([job])[0].score for job in jobs], abs=1e-5)
    expected = []
    for name in ("deep", None, "other"):
        auto = tf.AutoModelForCausalLM
        model = auto.from_pretrained(base) if name is None else tiny_loras.reference(base, loras[name], auto)
        for text in TEXTS:
            ids = tokenizer("$A")(f"w1 w2 ! {text} ?", return_tensors="pt")["input_ids"]
            with torch.inference_mode():
                logits = model.eval()(input_ids=ids).logits[0, -1]
            expected.append(float(logits[WORDS.index("yes")] - logits[WORDS.index("no")]))
    assert scores == pytest.approx(expected, abs=1e-4)
    assert np.abs(np.diff(np.reshape(scores, (3, -1)), axis=0)).max() > 1e-3


def test_an_adapter_of_the_output_layer_is_refused_and_the_base_goes_on(reranker: Any):
    base, loras = reranker
    options = {"template": "{query} ! {document} ?", "yes": "yes", "no": "no"}
    served = Adapted(base, loras, ("head",), family="yes_no_reranker", tasks=(Task.SCORE,), options=options)

    with pytest.raises(InvalidInput, match="cannot be served"):
        served.model.bring("head")
    (right,) = served.model.run(served.jobs(None, Task.SCORE)[:1])

    assert np.isfinite(right.score)
