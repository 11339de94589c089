"""Weights leave a device and come back as they were. Here a CPU stands for the card: the code is the same."""

from __future__ import annotations

from collections.abc import Mapping

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from transformers import AutoModel, AutoModelForCausalLM, BertConfig, BertModel

from engine.adapters.family import Parkable
from engine.adapters.forward import linear, weights
from engine.devices.host import trim
from engine.devices.parking import park
from tests.fresh import in_a_fresh_process
from tests.weights import weights as starter


class Held:
    """Anything that holds tensors."""

    def __init__(self, **tensors: Tensor) -> None:
        self.held = tensors

    def tensors(self) -> Mapping[str, Tensor]:
        return self.held


class Of(Held):
    """A model of torch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(**{name.replace(".", "_"): t for name, t in weights.tensors(model).items()})


class Tied(nn.Module):
    """An output tied to the embedding, a buffer that is a view of another, one that is never stored."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 24)
        self.hidden = nn.Linear(24, 24)
        self.output = nn.Linear(24, 50, bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("scale", torch.linspace(0, 1, 48))
        self.register_buffer("part", self.scale[1::2].view(4, 6).T, persistent=False)
        self.register_buffer("flags", torch.tensor([True, False, True]), persistent=False)
        self.requires_grad_(False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.output(self.hidden(self.embedding(ids) * self.part.flatten()))


def storages(model: Parkable) -> list[StorageWeakRef]:
    return [StorageWeakRef(t.untyped_storage()) for t in model.tensors().values()]


@torch.inference_mode()
def test_a_model_answers_bit_for_bit_as_before():
    torch.manual_seed(0)
    model = Tied().eval()
    before = model(torch.arange(50))

    parked = park(Of(model), "cpu")
    parked.restore("cpu")

    assert torch.equal(model(torch.arange(50)), before)


def test_its_bytes_are_given_back_while_it_is_away():
    held = Of(Tied())
    before = storages(held)

    parked = park(held, "cpu")

    assert all(storage.expired() for storage in before)
    assert all(tensor.untyped_storage().nbytes() == 0 for tensor in held.tensors().values())
    assert parked.nbytes >= 4 * (50 * 24 + 24 * 24 + 24 + 48) + 3


def test_what_shared_memory_shares_it_again():
    model = Tied()
    parked = park(Of(model), "cpu")
    parked.restore("cpu")

    assert model.output.weight is model.embedding.weight
    model.embedding.weight.data[7] = 5.0
    model.scale[1] = 9.0
    assert (model.output.weight[7] == 5.0).all() and model.part[0, 0] == 9.0
    assert model.part.shape == (6, 4) and model.part.stride() == (2, 12)


def test_it_can_leave_again_and_again_and_takes_no_more():
    model = Tied()
    held, values = Of(model), [t.clone() for t in Of(model).tensors().values()]
    sizes = []
    for _ in range(3):
        parked = park(held, "cpu")
        sizes.append(parked.nbytes)
        parked.restore("cpu")
        parked.release()

    assert all(torch.equal(t, was) for t, was in zip(held.tensors().values(), values, strict=True))
    assert len(set(sizes)) == 1


def test_the_host_memory_is_given_back_and_the_model_lives_on():
    in_a_fresh_process(host_memory_is_given_back)


def host_memory_is_given_back():
    process = psutil.Process()
    held = Held(a=torch.ones(16 << 20))
    trim()
    before = process.memory_info().rss

    parked = park(held, "cpu")
    parked.restore("cpu")
    assert process.memory_info().rss - before > 48 << 20
    parked.release()

    assert process.memory_info().rss - before < 8 << 20
    assert (held.held["a"] == 1).all()


def test_a_copy_that_fails_leaves_the_model_as_it_was():
    held = Held(a=torch.ones(10, device="meta"))  # nothing can be copied out of there

    with pytest.raises(NotImplementedError):
        park(held, "meta")

    assert held.held["a"].shape == (10,)


def test_a_restore_that_fails_can_be_tried_again():
    held = Held(a=torch.arange(10))
    parked = park(held, "cpu")

    with pytest.raises(RuntimeError):
        parked.restore("no such device")
    parked.restore("cpu")

    assert torch.equal(held.held["a"], torch.arange(10))


def test_a_model_without_tensors_takes_nothing():
    parked = park(Held(), "cpu")
    parked.restore("cpu")
    parked.release()

    assert parked.nbytes == 0


def test_what_lies_elsewhere_stays_there():
    elsewhere = torch.empty(5, device="meta")
    held = Held(here=torch.ones(5), there=elsewhere)

    park(held, "cpu")

    assert elsewhere.shape == (5,) and held.held["here"].numel() == 0


@torch.inference_mode()
def test_weights_that_are_rearranged_for_a_cpu_stay_in_place_and_work():
    config = BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    torch.manual_seed(0)
    model = BertModel(config, add_pooling_layer=False).eval()
    linear.pack(model)
    ids = torch.arange(20)[None]
    before = model(ids).last_hidden_state

    parked = park(Of(model), "cpu")
    parked.restore("cpu")

    assert torch.equal(model(ids).last_hidden_state, before)


dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
tensors = st.tuples(dtypes, st.lists(st.integers(0, 5), max_size=3), st.booleans())


@settings(deadline=None)
@given(st.lists(tensors, max_size=8))
def test_any_tensors_come_back_with_their_values_and_their_form(made):
    held = {}
    for number, (dtype, shape, turned) in enumerate(made):
        tensor = torch.randint(0, 2, shape).to(dtype)
        held[str(number)] = tensor.T if turned and len(shape) == 2 else tensor
    before = {name: (t.clone(), t.stride()) for name, t in held.items()}

    parked = park(Held(**held), "cpu")
    parked.restore("cpu")
    parked.release()

    assert all(torch.equal(held[name], value) for name, (value, _) in before.items())
    assert all(held[name].stride() == stride for name, (_, stride) in before.items())


@torch.inference_mode()
def test_a_model_of_the_starter_pack_comes_back_as_it_was():
    path = starter("sentence-transformers/all-MiniLM-L6-v2")
    model = weights.load(AutoModel, path, "cpu", torch.float32)
    ids = torch.arange(1000, 1100)[None]
    before = model(ids).last_hidden_state

    parked = park(Of(model), "cpu")
    assert parked.nbytes >= weights.weights_bytes(path, torch.float32, without=["pooler"])
    parked.restore("cpu")

    assert torch.equal(model(ids).last_hidden_state, before)


@torch.inference_mode()
def test_a_decoder_with_a_tied_head_is_moved_once():
    path = starter("HuggingFaceTB/SmolLM2-135M-Instruct")
    model = weights.load(AutoModelForCausalLM, path, "cpu", torch.float32)
    size = sum(t.nbytes for t in weights.tensors(model).values())

    parked = park(Of(model), "cpu")
    parked.restore("cpu")

    assert parked.nbytes < size * 1.001
    assert model.lm_head.weight is model.model.embed_tokens.weight
