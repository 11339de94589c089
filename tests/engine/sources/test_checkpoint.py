"""Torch checkpoints become safetensors; what else a pickle may hold is not run."""

from __future__ import annotations

import pickle

import pytest
import torch
from safetensors.torch import load_file

from engine.sources.conversions.checkpoint import torch_checkpoint
from engine.sources.files import WheelFiles, below


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
