from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    CLIPConfig,
    CLIPModel,
)

from engine.adapters.forward import claims, weights
from engine.loading import believed

SMALL = {"vocab_size": 100, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    BertForMaskedLM(BertConfig(**SMALL, num_hidden_layers=2)).save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    tower = {**SMALL, "num_hidden_layers": 1}
    vision = {**tower, "image_size": 16, "patch_size": 8}
    CLIPModel(CLIPConfig(text_config=tower, vision_config=vision)).save_pretrained(tmp_path)
    return tmp_path


def say(path: Path, part: str | None = None, **claimed: Any) -> None:
    said = json.loads((path / "config.json").read_text())
    (said if part is None else said[part]).update(claimed)
    (path / "config.json").write_text(json.dumps(said))


@pytest.fixture
def never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: Any, **__: Any) -> Any:
        raise AssertionError("a network was built")

    monkeypatch.setattr(weights, "skeleton", built)


@pytest.mark.usefixtures("never_built")
@pytest.mark.parametrize("key", ["num_labels", "vocab_size", "hidden_size", "intermediate_size"])
def test_a_width_that_no_tensor_has_is_refused_before_anything_is_built(masked: Path, key: str):
    say(masked, **{key: 10**9})

    with pytest.raises(weights.BadWeights, match=rf"config\.json: {key} is 1000000000, .* over 512\."):
        weights.load(AutoModel, masked, "cpu", torch.float32)
    with pytest.raises(weights.BadWeights, match=key):  # and by what a request asks first
        believed(masked)


@pytest.mark.usefixtures("never_built")
def test_more_layers_than_tensors_are_refused_before_anything_is_built(masked: Path):
    say(masked, num_hidden_layers=100_000)
    held = len(weights.stored_tensors(masked))

    with pytest.raises(weights.BadWeights, match=rf"num_hidden_layers is 100000, .* {held} tensors"):
        weights.load(AutoModel, masked, "cpu", torch.float32)


@pytest.mark.usefixtures("never_built")
@pytest.mark.parametrize("part", ["vision_config", "text_config"])
def test_parts_of_a_configuration_are_not_believed_either(pair: Path, part: str):
    say(pair, part, num_hidden_layers=100_000)

    with pytest.raises(weights.BadWeights, match=rf"{part}\.num_hidden_layers is 100000"):
        weights.load(AutoModel, pair, "cpu", torch.float32)


def test_a_patch_of_no_pixels_is_refused_at_load(pair: Path):
    say(pair, "vision_config", patch_size=0)

    with pytest.raises(weights.BadWeights, match=r"vision_config\.patch_size is 0; it is at least 1"):
        believed(pair)


@pytest.mark.parametrize("layers", [0, 1])
def test_layers_that_config_does_not_have_are_not_dropped(masked: Path, layers: int):
    say(masked, num_hidden_layers=layers)

    with pytest.raises(weights.BadWeights, match=rf"the weights hold bert\..*\.{layers}\..* {layers} such"):
        weights.load(AutoModel, masked, "cpu", torch.float32)


@pytest.mark.parametrize("claimed", [{"vocab_size": 90}, {"max_position_embeddings": 10**10}])
def test_sizes_that_are_not_those_of_the_weights_are_said_with_both(masked: Path, claimed: dict[str, int]):
    say(masked, **claimed)

    (said,) = claimed.values()
    with pytest.raises(weights.BadWeights, match=rf"in the weights and \[{said}.* by the configuration"):
        weights.load(AutoModelForMaskedLM, masked, "cpu", torch.float32)


def test_a_network_larger_than_its_weights_is_refused():
    with torch.device("meta"):
        network = torch.nn.Linear(10_000, 10_000)

    with pytest.raises(ValueError, match=r"network of 100010000 numbers.* weights are 400 bytes"):
        claims.fits(network, {"other": torch.zeros(100)})


def test_what_is_left_over_of_another_task_does_no_harm(masked: Path):
    tensors = weights.read(weights.stored_tensors(masked))
    more = {"bert.pooler.extra.7.weight": torch.zeros(2), "bert.embeddings.position_ids": torch.zeros(9)}
    save_file({**tensors, **more}, masked / "model.safetensors", {"format": "pt"})

    assert weights.load(AutoModel, masked, "cpu", torch.float32, without=["cls", "pooler"]) is not None


def test_a_head_that_the_weights_lack_is_still_said_to_lack(masked: Path):
    with pytest.raises(weights.BadWeights, match="lacks"):
        weights.load(AutoModelForSequenceClassification, masked, "cpu", torch.float32)
