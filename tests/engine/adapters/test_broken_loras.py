"""Adapters that are broken or meant to harm: each is refused by name, and its base and neighbours go on."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from engine.adapters.lora import said
from engine.errors import InvalidInput
from engine.requests import EncodeOptions, Item, Task
from tests.engine.adapters import tiny_loras
from tests.engine.adapters.test_lora import Adapted, dense
from tests.engine.adapters.tiny_texts import FAMILIES, TEXTS, entry, saved

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(FAMILIES["bert"](), tmp_path_factory.mktemp("base") / "base")


@pytest.fixture(scope="module")
def good(base: Path) -> Path:
    given = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}
    return tiny_loras.save(base, base.parent / "good", tf.AutoModel, 1, **given)


@pytest.fixture(scope="module")
def expected(base: Path, good: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """What base and neighbour give, and the base's workspace, where nothing is broken."""
    served = Adapted(base, {"good": good})
    taken = served.family.footprint(served.spec, base).workspace_per_cost
    plain, adapted = (dense(served.model.run(served.jobs(TEXTS, lora))) for lora in (None, "good"))
    return plain, adapted, taken


def changed(good: Path, to: Path, config: Any = None, tensors: Callable[[Tensors], Tensors] = dict) -> Path:
    """The good adapter with another configuration (text: the whole file) or other tensors."""
    to.mkdir()
    own = json.loads((good / CONFIG).read_text())
    (to / CONFIG).write_text(config if isinstance(config, str) else json.dumps({**own, **(config or {})}))
    save_file({n: t.contiguous() for n, t in tensors(load_file(good / TENSORS)).items()}, to / TENSORS)
    return to


def low(rank: int, width: int = 32) -> Callable[[Tensors], Tensors]:
    return lambda own: {n: torch.ones((rank, width) if "lora_A" in n else (width, rank)) for n in own}


def headed(good: Path, to: Path, header: bytes) -> Path:
    changed(good, to)
    (to / TENSORS).write_bytes(struct.pack("<Q", len(header)) + header)
    return to


def inside(to: Path, config: dict[str, Any], *kinds: str) -> Path:
    """A checkpoint that says that it has adapters beside its layers."""
    to.mkdir()
    (to / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    place = "encoder.layer.0.attention.self.query.parametrizations.weight.0."
    save_file({f"{place}{kind}": torch.ones(1, 4, 32) for kind in kinds}, to / "model.safetensors")
    return to


def goes_on(served: Adapted, base: Path, expected: tuple[np.ndarray, np.ndarray, int]) -> None:
    plain, adapted, taken = expected
    assert served.family.footprint(served.spec, base).workspace_per_cost == taken
    for lora, vectors in ((None, plain), ("good", adapted)):
        assert np.abs(dense(served.model.run(served.jobs(TEXTS, lora))) - vectors).max() <= 1e-6


NAME = "base_model.model.encoder.layer.0.attention.self.query"
CONFIGS: dict[str, tuple[Any, str]] = {
    "a list": ("[]", "object"),
    "null": ("null", "object"),
    "a string": ('"x"', "object"),
    "nested": ("[" * 100_000 + "]" * 100_000, "cannot be read"),
    "nested below": ('{"x":' * 50_000 + "1" + "}" * 50_000, "cannot be read"),
    "large": (" " * (4 << 20) + "{}", "larger than"),
    "ranks are a list": ({"rank_pattern": ["x"]}, "rank_pattern"),
    "alphas are a string": ({"alpha_pattern": "x"}, "alpha_pattern"),
    "alpha is null": ({"alpha_pattern": {"query": None}}, "alpha_pattern"),
    "400 digits": ({"lora_alpha": 10**400}, "lora_alpha"),
    "rank 0": ({"r": 0}, r"\$\.r"),
    "a huge rank": ({"r": 20_000}, "1024"),
    "half an expression": ({"rank_pattern": {"(": 4}}, "rank_pattern or alpha_pattern has the key"),
    "an expression that backtracks": (
        {"rank_pattern": {"([a-z.0-9]+)+!": 4}},
        "rank_pattern or alpha_pattern has the key",
    ),
    "the same for alphas": (
        {"alpha_pattern": {"([a-z.0-9]+)+!": 4}},
        "rank_pattern or alpha_pattern has the key",
    ),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_broken_configuration_fails_its_adapter_alone(
    kind: str, base: Path, good: Path, expected: Any, tmp_path: Path
):
    config, what = CONFIGS[kind]
    refused(changed(good, tmp_path / "bad", config), what, base, good, expected)


def refused(bad: Path, what: str, base: Path, good: Path, expected: Any) -> None:
    """By its name as soon as a request is read, while base and neighbour are sized and read as ever."""
    spec = tiny_loras.with_loras(entry(), {"bad": bad, "good": good})
    family = tiny_loras.of(spec)
    preparer = family.preparer(spec, base)

    with pytest.raises(InvalidInput, match=f"adapter bad .*{what}"):
        preparer.prepare(Task.ENCODE, [Item(text="w1")], EncodeOptions(lora="bad"))
    with pytest.raises(InvalidInput, match=f"adapter bad .*{what}"):
        family.adapter_footprint(spec, "bad", base)
    for lora in (None, "good"):
        preparer.prepare(Task.ENCODE, [Item(text="w1")], EncodeOptions(lora=lora))
    assert family.footprint(spec, base).workspace_per_cost == expected[2]


WRONG: dict[str, tuple[Any, Callable[[Tensors], Tensors], str]] = {
    "integers": ({}, lambda own: {n: t.int() for n, t in own.items()}, "floating-point"),
    "a bias of another length": (
        {},
        lambda own: {f"{NAME}.weight": torch.ones(32, 32), f"{NAME}.bias": torch.ones(3)},
        "bias",
    ),
    "no numbers": ({}, low(4, 0), "shape"),
    "one name twice": (
        {},
        lambda own: own | {n.removeprefix("base_model.model."): t.clone() for n, t in own.items()},
        "twice",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_tensors_fail_their_adapter_alone(
    kind: str, base: Path, good: Path, expected: Any, tmp_path: Path
):
    config, tensors, what = WRONG[kind]
    refused(changed(good, tmp_path / "bad", config, tensors), what, base, good, expected)


@pytest.mark.parametrize("header", [b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000])
def test_a_deep_header_fails_its_adapter_alone(
    header: bytes, base: Path, good: Path, expected: Any, tmp_path: Path
):
    refused(headed(good, tmp_path / "bad", header), "", base, good, expected)


@pytest.mark.parametrize(("width", "word"), [(64, "query"), (4096, "query"), (4096, "unheard_of")])
def test_an_adapter_of_another_base_takes_no_room_of_this_one(
    width: int, word: str, base: Path, good: Path, expected: Any, tmp_path: Path
):
    made = low(200, width)
    bad = changed(
        good,
        tmp_path / "bad",
        {"r": 200},
        lambda own: {n.replace("query", word): t for n, t in made(own).items() if "query" in n},
    )
    served = Adapted(base, {"bad": bad, "good": good}, without=("bad",))

    goes_on(served, base, expected)
    with pytest.raises(InvalidInput, match=r"adapter bad .*made for another"):
        served.jobs(["w1"], "bad")


@pytest.mark.parametrize(
    ("config", "kinds", "what"),
    [
        ({"lora_adaptations": ["bad"], "lora_rank": 0}, ("lora_A", "lora_B"), "lora_rank"),
        ({"lora_adaptations": 5}, ("lora_A", "lora_B"), "lora_adaptations"),
        ({"lora_adaptations": ["bad"]}, ("lora_A",), "no lora_B"),
        ({"lora_adaptations": ["bad"]}, (), "no matrices"),
        ({"lora_adaptations": ["bad", "other"]}, ("lora_A", "lora_B"), "shape"),
        ({"lora_adaptations": ["bad"]}, ("lora_A", "lora_B"), "product"),
        ({"lora_adaptations": ["bad"], "lora_alpha": 10**400}, ("lora_A", "lora_B"), "lora_alpha"),
    ],
)
def test_a_checkpoint_that_lies_about_its_adapters_fails_them_alone(
    config: Any, kinds: Any, what: str, base: Path, good: Path, expected: Any, tmp_path: Path
):
    refused(inside(tmp_path / "bad", config, *kinds), what, base, good, expected)


@pytest.mark.parametrize("text", ["[]", "null", '{"model_type": []}', "[" * 100_000])
def test_a_model_configuration_beside_an_adapter_that_is_none_fails_it_alone(
    text: str, base: Path, good: Path, expected: Any, tmp_path: Path
):
    bad = inside(tmp_path / "bad", {})
    (bad / "config.json").write_text(text)
    refused(bad, "", base, good, expected)


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        (lambda own: {n: torch.full_like(t, float("nan")) for n, t in own.items()}, "NaN"),
        (lambda own: {n: torch.full_like(t, float("inf")) for n, t in own.items()}, "NaN or infinity"),
        (lambda own: {n: torch.full_like(t, 1e300, dtype=torch.double) for n, t in own.items()}, "infinity"),
        (
            lambda own: own | {n.replace(".model.", ".model.bert."): t.clone() for n, t in own.items()},
            "twice",
        ),
    ],
)
def test_what_shows_when_it_is_brought_fails_its_adapter_alone(
    tensors: Any, what: str, base: Path, good: Path, expected: Any, tmp_path: Path
):
    served = Adapted(
        base, {"bad": changed(good, tmp_path / "bad", {}, tensors), "good": good}, without=("bad",)
    )

    with pytest.raises(InvalidInput, match=f"adapter bad .*{what}"):
        served.model.bring("bad")
    goes_on(served, base, expected)


def test_an_expression_that_chooses_modules_is_never_run(
    base: Path, good: Path, expected: Any, tmp_path: Path
):
    """The file's tensors say which layers they change."""
    same = changed(good, tmp_path / "same", {"target_modules": "([a-z.0-9]+)+!"})
    served = Adapted(base, {"same": same, "good": good})

    read, own = (dense(served.model.run(served.jobs(TEXTS, each))) for each in ("same", "good"))
    assert np.array_equal(read, own)


LAYER = "encoder.layer.1.attention.self.query"


@pytest.mark.parametrize(
    "key",
    [
        *("query", "self.query", "uery", "ery", "1.attention.self.query", f"^{LAYER}", "^query$"),
        *("key|query", "key|value", "^query|self.query$", r"self\.query", r"attention\.self", "self-query"),
        *(
            "attention.self",
            "layer.0.attention.self.query",
            f"x.{LAYER}",
            "1.attention_self.query",
            "selfxquery",
        ),
        *(".query", "..query", "f.query", "elf.query", "attention...self.query", "attention.....query"),
    ],
)
def test_a_key_means_the_layers_that_it_means_to_peft(key: str):
    from peft.utils.other import get_pattern_key

    known = said.patterns(Path("adapter"), {key: 2.0})

    assert (said.of(LAYER, known, 1.0) == 2.0) == (get_pattern_key([key], LAYER) == key)


def test_keys_without_end_are_refused_before_they_are_compared(base: Path, good: Path, tmp_path: Path):
    keys = {"|".join(f"k{place}n{number}" for place in range(40)): 4 for number in range(4096)}
    bad = changed(
        good,
        tmp_path / "bad",
        {"rank_pattern": keys},
        lambda own: {
            f"l{n}.{kind}.weight": torch.ones(1, 1) for n in range(40) for kind in ("lora_A", "lora_B")
        },
    )
    spec = tiny_loras.with_loras(entry(), {"bad": bad})

    with pytest.raises(InvalidInput, match="too many keys"):
        tiny_loras.of(spec).adapter_footprint(spec, "bad", base)
