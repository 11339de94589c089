from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.adapters.forward import linear
from engine.adapters.forward.linear import PackedLinear


class Tied(nn.Module):
    """A hidden layer with a bias, one without, and an output tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 24)
        self.hidden = nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 24, bias=False))
        self.output = nn.Linear(24, 50, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.output(self.hidden(self.embedding(ids)))


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_a_packed_model_answers_as_before(rows):
    torch.manual_seed(0)
    model, ids = Tied().eval(), torch.arange(rows)[None] % 50
    before = model(ids)
    linear.pack(model)

    assert [type(layer) for layer in model.hidden] == [PackedLinear, nn.Tanh, PackedLinear]
    assert torch.allclose(model(ids), before, atol=1e-5)


def test_a_weight_is_never_held_twice():
    model = Tied()
    linear.pack(model)

    assert type(model.output) is nn.Linear
    assert [name for name, _ in model.named_parameters()] == ["embedding.weight"]


def test_half_precision_is_left_alone():
    model = Tied().to(torch.bfloat16)
    linear.pack(model)

    assert type(model.hidden[0]) is nn.Linear


def test_released_layers_hold_nothing():
    model = Tied()
    linear.pack(model)
    layers = [model.hidden[0], model.hidden[2]]
    linear.release(model)

    assert [(layer._weight, layer._bias) for layer in layers] == [(None, None)] * 2
