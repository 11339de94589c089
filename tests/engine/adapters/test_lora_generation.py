from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

from engine.adapters.family import Prepared
from engine.errors import InvalidInput
from engine.requests import Generated, GenerateOptions, Item, Task
from tests.engine.adapters import tiny_decoders, tiny_loras

TEXTS = {"a": "Once", "b": "the quick brown fox jumps", "c": "x" * 40}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Writing:
    """A decoder with adapters, driven as the engine drives it."""

    def __init__(self, path: Path, loras: dict[str, Path]) -> None:
        spec = tiny_loras.with_loras(tiny_decoders.spec(path), loras)
        self.preparer = tiny_loras.of(spec).preparer(spec, path)
        self.model = tiny_loras.loaded(spec, path, without=("head",))

    def job(self, text: str, lora: str | None) -> Prepared:
        asked = GenerateOptions(raw=True, max_new_tokens=12, lora=lora)
        (prepared,) = self.preparer.prepare(Task.GENERATE, [Item(text=text)], asked)
        assert isinstance(prepared, Prepared)
        return prepared

    def write(self, jobs: dict[str, Prepared], going: int = 0) -> dict[str, list[int]]:
        """What these answer, and so many that go on already."""
        answers: dict[str, list[int]] = {}
        joining = jobs
        while len(answers) < len(jobs) + going:
            for job, progressed in self.model.advance(joining, (), 0.0).items():
                if progressed.done is not None:
                    assert isinstance(progressed.done, Generated), progressed.done
                    answers[job] = list(progressed.done.token_ids)
            joining = {}
        return answers


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("llama")
    base = tiny_decoders.save(folder / "base", tiny_decoders.CONFIGS["llama"])
    auto, kind = tf.AutoModelForCausalLM, {"task_type": "CAUSAL_LM"}
    few = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    many = {"r": 2, "lora_alpha": 4, "target_modules": ALL}
    return base, {
        "few": tiny_loras.save(base, folder / "few", auto, 1, **few, **kind),
        "many": tiny_loras.save(base, folder / "many", auto, 2, **many, **kind),
        "head": tiny_loras.save(
            base, folder / "head", auto, 3, r=2, lora_alpha=4, target_modules=["lm_head"]
        ),
    }


@torch.inference_mode()
def greedy(model: Any, text: str) -> list[int]:
    ids = torch.tensor([tiny_decoders.byte_level().encode(text).ids])
    out = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12
    )
    return out[0, ids.shape[1] :].tolist()


def jobs_of(writing: Writing) -> dict[str, Prepared]:
    kinds = (None, "few", "many")
    return {f"{key} {kind}": writing.job(text, kind) for key, text in TEXTS.items() for kind in kinds}


def test_sequences_of_one_running_set_each_write_as_peft_does_alone(llama: tuple[Path, dict[str, Path]]):
    base, loras = llama
    writing = Writing(base, loras)
    models = {
        str(kind): tiny_loras.reference(base, loras[kind], tf.AutoModelForCausalLM)
        for kind in ("few", "many")
    }
    models["None"] = tf.AutoModelForCausalLM.from_pretrained(base).eval()

    answers = writing.write(jobs_of(writing))

    expected = {f"{key} {kind}": greedy(m, text) for key, text in TEXTS.items() for kind, m in models.items()}
    assert answers == expected
    assert len({tuple(answer) for answer in answers.values()}) > len(TEXTS)


def test_an_adapter_may_come_and_go_while_others_write(llama: tuple[Path, dict[str, Path]]):
    writing = Writing(*llama)
    jobs = {"a": writing.job(TEXTS["b"], "few"), "b": writing.job("Once", "many")}
    alone = {key: writing.write({key: job})[key] for key, job in jobs.items()}

    writing.model.let_go("many")
    writing.model.advance({"a": jobs["a"]}, (), 0.0)
    writing.model.bring("many")

    assert writing.write({"b": jobs["b"]}, going=1) == alone


def test_an_adapter_of_the_output_head_is_refused(llama: tuple[Path, dict[str, Path]]):
    writing = Writing(*llama)

    with pytest.raises(InvalidInput, match="repeated layers"):
        writing.model.bring("head")
