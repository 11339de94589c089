from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.family import Fixed, Footprint, Parkable
from engine.adapters.forward.exact import InFloat32
from engine.adapters.forward.packed import Encoder, workspace_per_token
from engine.adapters.forward.packing import Layout
from engine.adapters.forward.weights import BadWeights
from engine.adapters.quick import grids, loading
from engine.adapters.quick.family import quick
from engine.adapters.quick.graphs import OFTEN, Graphed, Recorded
from engine.adapters.quick.grids import Grid, grid_of
from engine.adapters.quick.steps import Inputs, Run, filled
from engine.catalog import ModelSpec, Profile, Source
from engine.requests import Task
from tests.engine.adapters.test_packed import PACKED, sequences, tiny

LENGTHS = [12, 33, 1, 7, 12, 2]


class Tape:
    """Records as CUDA does: what is replayed is the run on the same tensors, into the same tensor."""

    def __init__(self) -> None:
        self.made: list[tuple[int, ...]] = []
        self.replays = self.begun = self.ended = 0
        self.closed = False

    def record(self, run: Run, inputs: Inputs) -> Recorded:
        self.made.append(tuple(inputs.ids.shape))
        states = torch.zeros_like(run(inputs))

        def replay() -> None:
            self.replays += 1
            states.copy_(run(inputs))

        return Recorded(inputs, states, replay)

    def begin(self) -> None:
        self.begun += 1

    def end(self) -> None:
        self.ended += 1

    def close(self) -> None:
        self.closed = True


class Broken(Tape):
    def record(self, run: Run, inputs: Inputs) -> Recorded:
        self.made.append(tuple(inputs.ids.shape))
        raise RuntimeError("operation not permitted when stream is capturing")


def graphed(model: tf.PreTrainedModel, tape: Tape) -> tuple[Encoder, Graphed]:
    encoder = Encoder(model)
    way = Graphed(model.base_model.forward, tape)
    loading.install(model, way)
    return encoder, way


def bert() -> tf.PreTrainedModel:
    return tiny(PACKED["bert"]())


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("family", PACKED)
def test_what_is_replayed_is_what_the_model_gives_without(family):
    plain = Encoder(tiny(PACKED[family]()))
    tape = Tape()
    encoder, _ = graphed(tiny(PACKED[family]()), tape)

    for batch in (LENGTHS, [33, 3], LENGTHS, LENGTHS, [40, 1, 1, 16, 5]):
        inputs = sequences(batch)
        found, expected = encoder.hidden(inputs), plain.hidden(inputs)
        for place in range(len(inputs)):
            assert close(found.of(place), expected.of(place)), (batch, place)

    assert tape.made == [(8, 64)]
    assert tape.replays == tape.begun == tape.ended == 5 - OFTEN


def test_tokens_that_nobody_attends_to_and_types_stay_what_they_are():
    plain, (encoder, _) = Encoder(bert()), graphed(bert(), Tape())
    inputs = sequences([9, 5, 14])
    kinds = [(np.arange(len(ids)) > 3).astype(np.int32) for ids in inputs]

    for _ in range(OFTEN):
        found, expected = (each.hidden(inputs, kinds, seen=[9, 2, 7]) for each in (encoder, plain))
    assert close(found.states, expected.states)


def test_a_shape_is_recorded_when_it_has_come_often_enough():
    tape = Tape()
    encoder, _ = graphed(bert(), tape)

    for count in range(1, OFTEN + 2):
        encoder.hidden(sequences([5, 9]))
        assert len(tape.made) == (count >= OFTEN)
    assert tape.made == [(2, 16)]


def test_what_cannot_be_recorded_runs_as_it_is_and_is_not_tried_again():
    tape = Broken()
    plain, (encoder, _) = Encoder(bert()), graphed(bert(), tape)
    inputs = sequences(LENGTHS)

    for _ in range(OFTEN + 3):
        assert close(encoder.hidden(inputs).states, plain.hidden(inputs).states)
    assert len(tape.made) == 1


def test_an_input_that_is_made_once_more_in_float32_is_not_replayed():
    tape = Tape()
    encoder, _ = graphed(bert(), tape)
    for _ in range(OFTEN + 1):
        encoder.hidden(sequences([5]))
    replays = tape.replays

    with InFloat32():
        encoder.hidden(sequences([5]))

    assert tape.replays == replays > 0


def test_slots_that_replay_one_graph_each_have_their_own_answers():
    plain, (encoder, _) = Encoder(bert()), graphed(bert(), Tape())
    batches = [sequences(lengths) for lengths in ([5, 9], [16, 3], [1, 2], [12, 12])]
    expected = [plain.hidden(batch).states for batch in batches]
    right: dict[int, list[bool]] = {}

    def slot(number: int) -> None:
        found = [encoder.hidden(batches[number]).states for _ in range(8)]
        right[number] = [close(each, expected[number]) for each in found]

    threads = [threading.Thread(target=slot, args=(number,)) for number in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == {number: [True] * 8 for number in range(len(batches))}


def test_recordings_hold_no_more_than_is_reserved_for_them():
    model = bert()
    Encoder(model)
    ids = torch.zeros(2, 64, dtype=torch.long)
    inputs = Inputs(ids, ids, torch.ones_like(ids, dtype=torch.bool), ids)
    with torch.inference_mode():
        states = filled(model.base_model.forward)(inputs)

    of_a_token = (states.nbytes + sum(each.nbytes for each in inputs if each is not None)) / ids.numel()
    every = of_a_token * sum(grid.tokens for grid in grids.every())

    config = model.config.to_dict()
    largest = grids.MOST * workspace_per_token(config)
    assert every + largest <= loading.recordings_bytes(config, 4) + 1


def test_a_way_that_changes_vectors_is_refused_when_the_model_is_loaded():
    model = bert()
    Encoder(model)
    forward = model.base_model.forward
    right = filled(forward)

    def wrong(inputs: Inputs) -> torch.Tensor:
        return right(inputs._replace(ids=inputs.ids.flip(1)))

    def failing(inputs: Inputs) -> torch.Tensor:
        raise RuntimeError("no kernel")

    loading.prove(forward, right, torch.device("cpu"))
    for run, said in ((wrong, "changes vectors"), (failing, "no kernel")):
        with pytest.raises(BadWeights, match=said):
            loading.prove(forward, run, torch.device("cpu"))


class Held:
    def __init__(self, network: object) -> None:
        self.network = network

    def run(self, jobs: object) -> list[object]:
        return []

    def unload(self) -> None:
        self.network = None


def entry(**more: object) -> ModelSpec:
    made = ModelSpec(
        id="tests/quick",
        family="text_encoder",
        tasks=(Task.ENCODE,),
        sources=(Source(directory="/nowhere"),),
        backend="torch-graphs",
    )
    return made.model_copy(update=more)


def test_a_quicker_way_is_for_packed_models_of_one_network_without_adapters():
    model = Held(bert())

    assert loading.quickened(model, entry(), "cpu") is model
    for held, spec, said in (
        (Held(None), entry(), "models of one encoder"),
        (Held(tiny(tf.MPNetConfig(hidden_size=64, num_attention_heads=4))), entry(), "does not run packed"),
        (model, entry(loras={"legal": object()}), "takes no adapters"),
    ):
        with pytest.raises(BadWeights, match=said):
            loading.quickened(held, spec, "cuda:0")


class Plain:
    """A family that knows backend torch alone."""

    cost_unit = "tokens"
    tasks = frozenset([Task.ENCODE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        assert spec.backend == "torch"
        return Footprint(1000, 10, 1.0)

    def preparer(self, spec: ModelSpec, path: Path) -> object:
        return spec.backend

    def load(self, spec: ModelSpec, path: Path, device: str) -> object:
        return Held(spec.backend)


def test_to_its_family_such_an_entry_is_one_of_torch():
    family = quick(Plain())
    spec = entry(profiles={"steady": Profile(backend="torch-compiled")}, devices=("cpu",))

    assert family.footprint(spec, Path()) == Footprint(1000, 10, 1.0)
    assert family.preparer(spec, Path()) == "torch"
    assert family.load(spec, Path(), "cpu").network == "torch"
    assert spec.unit("steady") == "tests/quick@torch-compiled"
    assert family.load(spec.profiled("steady"), Path(), "cpu").network == "torch"


def test_a_model_with_recordings_gives_them_back_with_its_weights():
    tape, model = Tape(), Held(bert())
    held = loading.Quickened(model, Graphed(model.network.forward, tape), torch.float16)

    assert isinstance(held, Fixed) and held.in_halves and not isinstance(held, Parkable)
    held.unload()

    assert tape.closed and model.network is None


@pytest.mark.parametrize(
    ("lengths", "grid"),
    [
        ([1], Grid(1, 16)),
        ([16], Grid(1, 16)),
        ([17], Grid(1, 32)),
        ([5, 9, 100], Grid(4, 128)),  # mostly filler, and small enough for that not to matter
        ([512] * 8, Grid(8, 512)),
        ([512] * 9, None),  # too large
        ([513], None),
        ([4] * 65, None),
        ([8] * 16 + [256], None),  # mostly filler
        ([40] * 20, None),
        ([60] * 20, Grid(32, 64)),
    ],
)
def test_a_batch_has_the_smallest_grid_that_is_worth_it(lengths, grid):
    assert grid_of(lengths) == grid
    assert grid is None or grid in grids.every()


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_every_token_has_a_place_of_its_own_in_its_sequences_row(lengths):
    layout = Layout(lengths)
    grid = grids.aligned(layout.lengths)

    places = grids.places(layout, grid)

    rows, columns = places // grid.length, places % grid.length
    assert len(set(places.tolist())) == layout.tokens
    assert (np.bincount(rows) == layout.lengths).all()
    assert (columns == layout.positions()).all()
    assert grids.seen(layout, grid).ravel()[places].all()
    assert grids.seen(layout, grid).sum() == layout.tokens
