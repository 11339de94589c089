"""Torch checkpoints become safetensors; what else a pickle may hold is not run."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.torch import load_file

from engine.catalog import Source
from engine.errors import WeightsUnavailable
from engine.sources.conversions.checkpoint import torch_checkpoint
from engine.sources.files import WheelFiles, below
from tests.engine.adapters import tiny_texts
from tests.engine.sources import carriers


class Harmful:
    def __reduce__(self):
        return (print, ("this must not run",))


def convert(folder, out):
    out.mkdir()
    torch_checkpoint(WheelFiles(folder, tuple(sorted(below(folder)))), out)
    return load_file(out / "model.safetensors")


def test_tensors_come_over_and_shared_ones_are_held_twice(tmp_path):
    (tmp_path / "in").mkdir()
    shared = torch.arange(6.0).view(2, 3)
    torch.save({"a": shared, "b": shared.t(), "step": 3}, tmp_path / "in" / "pytorch_model.bin")
    (tmp_path / "in" / "gliner_config.json").write_text("{}")

    made = convert(tmp_path / "in", tmp_path / "out")

    assert made.keys() == {"a", "b"}
    assert torch.equal(made["b"], shared.t())
    assert sorted(below(tmp_path / "out")) == ["gliner_config.json", "model.safetensors"]


def test_code_in_a_checkpoint_is_refused(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    torch.save({"a": Harmful()}, tmp_path / "in" / "pytorch_model.bin")

    with pytest.raises(pickle.UnpicklingError):
        convert(tmp_path / "in", tmp_path / "out")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("held", [[1], {"a": 1}])
def test_a_checkpoint_without_tensors_is_refused(held, tmp_path):
    (tmp_path / "in").mkdir()
    torch.save(held, tmp_path / "in" / "model.pt")

    with pytest.raises(ValueError, match="no named tensors"):
        convert(tmp_path / "in", tmp_path / "out")


def test_shards_modules_and_heads_come_over_under_the_names_that_are_read(tmp_path):
    folder, names = tmp_path / "in", ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
    (folder / "2_Dense").mkdir(parents=True)
    for name, shard in zip("ab", names, strict=True):
        torch.save({name: torch.ones(2)}, folder / shard)
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": dict(zip("ab", names, strict=True))})
    )
    torch.save({"linear.weight": torch.ones(2)}, folder / "2_Dense/pytorch_model.bin")
    torch.save({"weight": torch.ones(2)}, folder / "sparse_linear.pt")
    torch.save({"state": Harmful()}, folder / "optimizer.pt")
    out = tmp_path / "out"
    out.mkdir()

    torch_checkpoint(WheelFiles(folder, tuple(sorted(below(folder)))), out)

    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = "model.safetensors.index.json"
    assert sorted(below(out)) == ["2_Dense/model.safetensors", *shards, index, "sparse_linear.safetensors"]
    assert json.loads((out / index).read_text())["weight_map"] == dict(zip("ab", shards, strict=True))


def test_a_published_checkpoint_is_served_as_its_library_reads_it(tmp_path):
    """Through the child process, into the store, from the store into a family."""
    torch.manual_seed(0)
    path = tiny_texts.saved(tiny_texts.FAMILIES["bert"](), tmp_path / "in")
    held = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    held["embeddings.position_ids"] = torch.arange(64)[None]  # as older libraries saved it
    torch.save(held, path / "pytorch_model.bin")
    source = Source(directory=str(path), convert="torch_checkpoint")

    made = carriers.sources(tmp_path / "store").locate(carriers.spec(source))

    texts = tiny_texts.TEXTS[:3]
    (path / "model.safetensors").write_bytes((made / "model.safetensors").read_bytes())
    reference = tf.AutoModel.from_pretrained(path).eval()
    marks = tf.AutoTokenizer.from_pretrained(path)
    reference.load_state_dict({name: tensor for name, tensor in held.items() if "position_ids" not in name})
    served = tiny_texts.Served(made, outputs=("dense",), pooling="mean", normalize=False)
    for text, answer in zip(texts, served.encode(texts), strict=True):
        with torch.inference_mode():
            expected = reference(**marks(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        assert np.abs(answer.dense - expected.numpy()).max() <= 1e-5


def test_a_harmful_checkpoint_ends_the_conversion_and_is_told(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    torch.save({"a": Harmful()}, folder / "pytorch_model.bin")
    source = Source(directory=str(folder), convert="torch_checkpoint")

    with pytest.raises(WeightsUnavailable, match="the conversion torch_checkpoint failed") as refused:
        carriers.sources(tmp_path / "store").locate(carriers.spec(source))

    (tried,) = refused.value.details["tried"]
    assert "this must not run" not in tried["reason"]
