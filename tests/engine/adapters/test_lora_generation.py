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

    def __init__(self, path: Path, loras: dict[str, Path], **changes: Any) -> None:
        spec = tiny_loras.with_loras(tiny_decoders.spec(path), loras, **changes)
        family = tiny_loras.of(spec)
        self.footprint = family.footprint(spec, path)
        self.preparer = family.preparer(spec, path)
        self.model: Any = family.load(spec, path, "cpu")

    def job(self, text: str, lora: str | None) -> Prepared:
        asked = GenerateOptions(raw=True, max_new_tokens=12, lora=lora)
        (prepared,) = self.preparer.prepare(Task.GENERATE, [Item(text=text)], asked)
        assert isinstance(prepared, Prepared)
        return prepared

    def write(self, jobs: dict[str, Prepared]) -> dict[str, list[int]]:
        answers: dict[str, list[int]] = {}
        joining = jobs
        while len(answers) < len(jobs):
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


def test_what_has_no_room_for_its_adapter_waits_for_one_to_end(llama: tuple[Path, dict[str, Path]]):
    base, loras = llama
    wide, narrow = Writing(base, loras), Writing(base, loras, lora_room=1)

    answers = narrow.write(jobs_of(narrow))

    assert answers == wide.write(jobs_of(wide))
    held = sum(tensor.nbytes for tensor in narrow.model._residents.tensors().values())
    assert held <= wide.footprint.weights_bytes - Writing(base, {}).footprint.weights_bytes
    assert narrow.footprint.weights_bytes < wide.footprint.weights_bytes


def test_a_sequence_that_leaves_while_it_waits_is_forgotten(llama: tuple[Path, dict[str, Path]]):
    writing = Writing(*llama, lora_room=1)
    writing.model.advance({"a": writing.job("Once", "many"), "b": writing.job("Once", "few")}, (), 0.0)

    said = writing.model.advance({}, ["a", "b"], 0.0)

    assert said == {}
    assert writing.write({"c": writing.job("Once", "few")}).keys() == {"c"}


def test_an_adapter_of_the_output_head_is_refused(llama: tuple[Path, dict[str, Path]]):
    writing = Writing(*llama)

    said = writing.model.advance({"a": writing.job("Once", "head")}, (), 0.0)

    assert isinstance(said["a"].done, InvalidInput)
