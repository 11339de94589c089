from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from engine.adapters.family import Prepared
from engine.devices.parking import park
from engine.errors import InvalidInput
from engine.requests import Encoded, EncodeOptions, Item, Scored, ScoreOptions, Task
from tests.engine.adapters import tiny_loras
from tests.engine.adapters.tiny_texts import FAMILIES, TEXTS, entry, saved, tokenizer

EVERYWHERE = ["query", "key", "value", "dense"]


class Adapted:
    """A base with adapters, driven as the engine drives it."""

    def __init__(
        self, path: Path, loras: dict[str, Path], without: tuple[str, ...] = (), **given: Any
    ) -> None:
        self.spec = tiny_loras.with_loras(entry(**given), loras)
        self.family = tiny_loras.of(self.spec)
        self.preparer = self.family.preparer(self.spec, path)
        self.model = tiny_loras.loaded(self.spec, path, without=without)

    def jobs(self, texts: list[str], lora: str | None) -> list[Prepared]:
        items = [Item(text=text) for text in texts]
        return list(self.preparer.prepare(Task.ENCODE, items, EncodeOptions(lora=lora)))  # type: ignore[arg-type]

    def pairs(self, texts: list[str], lora: str | None) -> list[Prepared]:
        items = [Item(text=text) for text in texts]
        asked = ScoreOptions(query=Item(text="w1 w2"), lora=lora)
        return list(self.preparer.prepare(Task.SCORE, items, asked))  # type: ignore[arg-type]


def dense(outputs: Any) -> np.ndarray:
    assert all(isinstance(output, Encoded) for output in outputs), outputs
    return np.stack([output.dense for output in outputs])


def one_after_another(model: Any, jobs: list[Prepared]) -> list[Any]:
    return [model.run([job])[0] for job in jobs]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("bert")
    base = saved(FAMILIES["bert"](), folder / "base")
    first = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}
    second = {
        **{"r": 2, "lora_alpha": 6, "target_modules": EVERYWHERE, "use_rslora": True},
        **{"rank_pattern": {"key": 3}, "alpha_pattern": {"layer.1.attention.self.value": 9}},
    }
    return base, {
        "first": tiny_loras.save(base, folder / "first", tf.AutoModel, 1, **first),
        "second": tiny_loras.save(base, folder / "second", tf.AutoModel, 2, **second),
    }


@torch.inference_mode()
def means(model: Any) -> np.ndarray:
    made = []
    for text in TEXTS:
        read = tokenizer("[CLS] $A [SEP]", True)(text, return_tensors="pt")
        made.append(torch.nn.functional.normalize(model(**read).last_hidden_state[0].mean(0), dim=0).numpy())
    return np.stack(made)


@pytest.mark.parametrize("name", ["first", "second"])
def test_vectors_with_an_adapter_equal_those_of_peft(bert: tuple[Path, dict[str, Path]], name: str):
    base, loras = bert
    served = Adapted(base, loras)

    vectors = dense(served.model.run(served.jobs(TEXTS, name)))

    expected = means(tiny_loras.reference(base, loras[name], tf.AutoModel))
    assert np.abs(vectors - expected).max() <= 1e-5
    assert np.abs(vectors - dense(served.model.run(served.jobs(TEXTS, None)))).max() > 1e-2


def test_a_batch_of_several_adapters_is_one_pass_and_equals_solo_runs(bert: tuple[Path, dict[str, Path]]):
    base, loras = bert
    served = Adapted(base, loras)
    kinds = (None, "first", "second")
    jobs = [job for kind in kinds for job in served.jobs(TEXTS, kind)]
    jobs = [jobs[place] for place in np.random.default_rng(0).permutation(len(jobs))]
    alone = dense(one_after_another(served.model, jobs))
    passes: list[int] = []
    network = served.model._model.network
    network.register_forward_hook(lambda *_: passes.append(1))

    together = dense(served.model.run(jobs))

    assert len(passes) == 1
    assert np.abs(together - alone).max() <= 1e-5


def test_documents_of_a_request_go_on_sharing_their_query(bert: tuple[Path, dict[str, Path]]):
    served = Adapted(bert[0], bert[1])
    jobs = served.pairs(TEXTS, "first")

    assert len({id(job.payload.query) for job in jobs}) == 1
    mixed = served.model.run([*jobs, *served.pairs(TEXTS, None)])
    alone = one_after_another(served.model, jobs)
    assert [m.score for m in mixed[: len(jobs)]] == pytest.approx([a.score for a in alone], abs=1e-5)


def test_the_ledger_is_told_of_each_adapter_by_itself_to_the_byte(bert: tuple[Path, dict[str, Path]]):
    base, loras = bert
    served, plain = Adapted(base, loras), entry()
    own = tiny_loras.of(plain).footprint(plain, base).weights_bytes

    assert served.family.footprint(served.spec, base).weights_bytes == own
    for name, path in loras.items():
        held = [t for key, t in served.model.tensors().items() if f".{name}." in key]
        in_file = load_file(path / "adapter_model.safetensors").values()
        told = served.family.adapter_footprint(served.spec, name, base)
        unused = 2 * 2 * 32 * 4 if name == "second" else 0  # of a pooler that this model does without
        assert told.weights_bytes == sum(t.nbytes for t in in_file)
        assert told.weights_bytes - sum(t.nbytes for t in held) == unused


def test_what_comes_and_goes_changes_nothing_for_others_and_is_itself_again(
    bert: tuple[Path, dict[str, Path]],
):
    served = Adapted(*bert)
    first, second = served.jobs(TEXTS, "first"), served.jobs(TEXTS, "second")
    before, others = dense(served.model.run(first)), dense(served.model.run(second))

    served.model.let_go("first")
    assert not any(".first." in name for name in served.model.tensors())
    assert np.array_equal(dense(served.model.run(second)), others)
    with pytest.raises(KeyError):  # no lease can name it
        served.model.run(first)
    served.model.bring("first")

    assert np.array_equal(dense(served.model.run(first)), before)


def test_a_base_that_was_in_host_memory_takes_its_adapters_again(bert: tuple[Path, dict[str, Path]]):
    served = Adapted(*bert)
    jobs = [*served.jobs(TEXTS, "first"), *served.jobs(TEXTS, "second"), *served.jobs(TEXTS, None)]
    before = dense(served.model.run(jobs))
    for name in ("first", "second"):
        served.model.let_go(name)

    parked = park(served.model, "cpu")
    parked.restore("cpu")
    parked.release()
    for name in ("first", "second"):
        served.model.bring(name)

    assert np.array_equal(dense(served.model.run(jobs)), before)


@pytest.fixture(scope="module")
def pair_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("pairs")
    config = FAMILIES["bert"]()
    config.num_labels = 1
    auto = tf.AutoModelForSequenceClassification
    base = saved(config, folder / "base", auto)
    deep = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}
    head = {"r": 4, "lora_alpha": 4, "target_modules": EVERYWHERE, "task_type": "SEQ_CLS"}
    return base, {
        "deep": tiny_loras.save(base, folder / "deep", auto, 3, **deep),
        "head": tiny_loras.save(base, folder / "head", auto, 4, **head),
    }


@pytest.mark.parametrize("name", ["deep", "head"])
def test_scores_with_an_adapter_equal_those_of_peft_its_own_head_included(
    pair_model: tuple[Path, dict[str, Path]], name: str
):
    base, loras = pair_model
    served = Adapted(base, loras, family="cross_encoder", tasks=(Task.SCORE,))
    other = "head" if name == "deep" else "deep"
    jobs = [*served.pairs(TEXTS, name), *served.pairs(TEXTS, other), *served.pairs(TEXTS, None)]

    scores = [output.score for output in served.model.run(jobs) if isinstance(output, Scored)]

    reference = tiny_loras.reference(base, loras[name], tf.AutoModelForSequenceClassification)
    read = [tokenizer("[CLS] $A [SEP]", True)("w1 w2", text, return_tensors="pt") for text in TEXTS]
    with torch.inference_mode():
        expected = [float(reference(**each).logits) for each in read]
    assert scores[: len(TEXTS)] == pytest.approx(expected, abs=1e-4)
    alone = [output.score for output in one_after_another(served.model, jobs)]
    assert scores == pytest.approx(alone, abs=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_padded_family_takes_a_pass_for_each_adapter(tmp_path: Path):
    base = saved(FAMILIES["deberta-v2"](), tmp_path / "base")
    given = {"r": 4, "lora_alpha": 8, "target_modules": ["query_proj", "value_proj"]}
    lora = tiny_loras.save(base, tmp_path / "lora", tf.AutoModel, 5, **given)
    served = Adapted(base, {"lora": lora})
    jobs = [*served.jobs(TEXTS, None), *served.jobs(TEXTS, "lora")]

    vectors = dense(served.model.run(jobs))

    assert np.abs(vectors - dense(one_after_another(served.model, jobs))).max() <= 1e-5
    assert np.abs(vectors[len(TEXTS) :] - vectors[: len(TEXTS)]).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bias": "all"}, "bias"),
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"r": 5}, "rank"),
    ],
)
def test_what_cannot_be_served_is_said_and_the_base_goes_on(
    bert: tuple[Path, dict[str, Path]], tmp_path: Path, change: dict[str, Any], said: str
):
    base, loras = bert
    bad = tmp_path / "bad"
    bad.mkdir()
    config = json.loads((loras["first"] / "adapter_config.json").read_text())
    (bad / "adapter_config.json").write_text(json.dumps({**config, **change}))
    save_file(load_file(loras["first"] / "adapter_model.safetensors"), bad / "adapter_model.safetensors")
    served = Adapted(base, {"bad": bad, "first": loras["first"]}, without=("bad",))

    with pytest.raises(InvalidInput, match=said):
        served.jobs(["w1"], "bad")
    with pytest.raises(InvalidInput, match=said):
        served.family.adapter_footprint(served.spec, "bad", base)
    dense(served.model.run([*served.jobs(["w1"], None), *served.jobs(["w1"], "first")]))


def test_an_adapter_of_another_base_is_refused_and_the_base_goes_on(
    bert: tuple[Path, dict[str, Path]], tmp_path: Path
):
    config = FAMILIES["bert"]()
    config.hidden_size = 64
    larger = saved(config, tmp_path / "larger")
    given = {"r": 4, "lora_alpha": 8, "target_modules": ["query"]}
    foreign = tiny_loras.save(larger, tmp_path / "foreign", tf.AutoModel, 6, **given)
    served = Adapted(bert[0], {"foreign": foreign}, without=("foreign",))

    with pytest.raises(InvalidInput, match="another"):
        served.model.bring("foreign")
    dense(served.model.run(served.jobs(["w1"], None)))


def test_nothing_is_held_once_the_base_is_unloaded(bert: tuple[Path, dict[str, Path]]):
    served = Adapted(bert[0], bert[1])
    served.model.run(served.jobs(TEXTS, "first"))
    assert any(name.startswith("adapters.") for name in served.model.tensors())
    held = served.model._residents

    served.model.unload()

    assert held.tensors() == {}
