from __future__ import annotations

import json
import struct
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig, BertForMaskedLM, BertModel

from engine.adapters.forward import weights

SMALL = BertConfig(
    vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
)


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    BertForMaskedLM(SMALL).save_pretrained(tmp_path)
    return tmp_path


def held(model: torch.nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def anonymous() -> int:
    """Bytes of this process that are of no file."""
    (line,) = (x for x in Path("/proc/self/smaps_rollup").read_text().splitlines() if "Anonymous:" in x)
    return int(line.split()[1]) << 10


def test_headers_alone_tell_what_a_loaded_model_takes(masked: Path):
    model = weights.load(AutoModelForMaskedLM, masked, "cpu", torch.float32)

    assert weights.weights_bytes(masked) == held(model)


def test_weights_left_out_are_neither_counted_nor_read(masked: Path):
    without = ["cls", "pooler"]
    model = weights.load(AutoModel, masked, "cpu", torch.float32, without=without)

    assert type(model) is BertModel
    assert weights.weights_bytes(masked, without=without) == held(model)
    assert not any("cls" in name for name in weights.stored_tensors(masked, without))


def test_a_loaded_model_answers_as_the_librarys_own_does(masked: Path):
    ids = torch.arange(5, 25)[None]
    expected = AutoModelForMaskedLM.from_pretrained(masked).eval()(ids).logits

    logits = weights.load(AutoModelForMaskedLM, masked, "cpu", torch.float32)(ids).logits

    assert torch.equal(logits, expected)


def test_half_precision_on_disk_becomes_float32_and_is_counted_as_such(tmp_path: Path):
    BertForMaskedLM(SMALL).half().save_pretrained(tmp_path)

    model = weights.load(AutoModelForMaskedLM, tmp_path, "cpu", torch.float32)

    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert weights.weights_bytes(tmp_path, torch.float32) == held(model)
    assert weights.weights_bytes(tmp_path) == held(model) // 2


@pytest.mark.parametrize("wanted", ["float32", "float16", "bfloat16", "auto"])
def test_a_cpu_always_computes_in_float32(masked: Path, wanted: str):
    assert weights.dtype_on("cpu", wanted, masked) == torch.float32


def test_auto_is_the_dtype_of_most_of_the_bytes(tmp_path: Path):
    tensors = {"a": torch.zeros(1000, dtype=torch.bfloat16), "b": torch.zeros(10), "c": torch.arange(9999)}
    save_file(tensors, tmp_path / "model.safetensors")

    assert weights.dtype_on("cuda:0", "auto", tmp_path) == torch.bfloat16


def test_every_kind_of_tensor_is_read_as_it_was_saved(tmp_path: Path):
    tensors = {
        "matrix": torch.randn(3, 5),
        "half": torch.randn(4).half(),
        "brain": torch.randn(2, 2).bfloat16(),
        "scalar": torch.tensor(7),
        "empty": torch.zeros(0, 4),
        "flags": torch.tensor([True, False]),
    }
    save_file(tensors, tmp_path / "model.safetensors")

    found = weights.read(weights.stored_tensors(tmp_path))

    assert {name: (t.dtype, t.shape) for name, t in found.items()} == {
        name: (t.dtype, t.shape) for name, t in tensors.items()
    }
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_what_is_mapped_for_another_device_is_the_same_and_takes_no_memory(tmp_path: Path):
    tensors = {
        "large": torch.randn(16 << 20),
        "half": torch.randn(3, 3).bfloat16(),
        "flag": torch.tensor([True]),
        "empty": torch.zeros(0, 4),
        "after": torch.arange(5),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    stored, before = weights.stored_tensors(tmp_path), anonymous()

    found = weights.mapped(stored)
    total = found["large"].sum()

    assert anonymous() - before < 8 << 20
    assert total == tensors["large"].sum()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_a_file_whose_tensors_are_not_aligned_is_mapped_all_the_same(tmp_path: Path):
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    while (8 + len(header)) % 4 == 0:
        header += b" "
    (tmp_path / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + struct.pack("<2f", 1.5, -2.0)
    )

    assert weights.mapped(weights.stored_tensors(tmp_path))["a"].tolist() == [1.5, -2.0]


def test_a_model_for_another_device_is_built_from_mapped_files(masked: Path):
    model = weights.load(AutoModelForMaskedLM, masked, "meta", torch.float16)

    assert {(p.device.type, p.dtype) for p in model.parameters()} == {("meta", torch.float16)}


def test_a_loaded_model_lives_in_memory_of_its_own(masked: Path):
    model = weights.load(AutoModelForMaskedLM, masked, "cpu", torch.float32)
    before = [p.clone() for p in model.parameters()]

    file = masked / "model.safetensors"
    with file.open("r+b") as stored:  # in place, so that a mapping of the file would see it
        stored.seek(file.stat().st_size // 4)
        stored.write(b"\xff" * (file.stat().st_size // 2))

    assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))
    assert not any(m.path == str(file) for m in psutil.Process().memory_maps())


def test_a_weight_that_is_missing_is_said_and_not_made_up(masked: Path):
    tensors = weights.read(weights.stored_tensors(masked))
    del tensors["bert.encoder.layer.1.output.dense.weight"]
    save_file(tensors, masked / "model.safetensors", {"format": "pt"})

    with pytest.raises(weights.BadWeights, match=r"lacks 1 weights.*layer\.1\.output\.dense\.weight"):
        weights.load(AutoModelForMaskedLM, masked, "cpu", torch.float32)


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"\x10" + b"\0" * 7 + b"not json at all!"])
def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "model.safetensors").write_bytes(content)

    with pytest.raises(weights.BadWeights):
        weights.weights_bytes(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        '{"dtype":"F32","shape":[-1,-2],"data_offsets":[0,8]}',
        '{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}',
        '{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}',
        '{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}',
        "9" * 5000,
        "[" * 100_000,
    ],
)
def test_a_header_that_says_what_no_tensor_is_is_refused(tmp_path: Path, entry: str):
    header = f'{{"a":{entry}}}'.encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)

    with pytest.raises(weights.BadWeights):
        weights.stored_tensors(tmp_path)


def test_a_file_that_was_cut_short_is_refused(masked: Path):
    file = masked / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])

    with pytest.raises(weights.BadWeights, match="not where its header says"):
        weights.weights_bytes(masked)


def test_shards_count_together_and_stay_in_their_directory(tmp_path: Path):
    save_file({"a": torch.zeros(10)}, tmp_path / "one.safetensors")
    save_file({"b": torch.zeros(20)}, tmp_path / "two.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))

    assert weights.weights_bytes(tmp_path) == 120

    index.write_text(json.dumps({"weight_map": {"a": "../one.safetensors"}}))
    with pytest.raises(weights.BadWeights, match="outside"):
        weights.weights_bytes(tmp_path)
