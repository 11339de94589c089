"""Prompt injection by NanoGuard, a bidirectional transformer of 16.8 M parameters.

The reference (package `nanoguard`, MIT) pads every text to 512 tokens and lets attention see the
padding, so the padding is part of the model: "hello" is an injection by 0.02 with it and by 0.33 without.
Here too every window is 512 tokens, and costs them. A text longer than one window is looked at in
overlapping windows, and the most alarming one answers: an injection on page nine is one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tiktoken
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.labelling.labels import Chosen, Labels, in_order
from engine.adapters.preparing.kinds import extract_options, only_text
from engine.adapters.preparing.windows import fit
from engine.catalog import ModelSpec
from engine.devices.host import trim
from engine.errors import EngineError
from engine.requests import Extracted, ExtractOptions, Item, Options, Task, Usage

BEGIN, PAD = "<|reserved_0|>", "<|reserved_1|>"
INJECTION = "injection"
OVERLAP = 128
WINDOWS_AT_ONCE = 8
ROPE_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Text:
    """One text: its windows, padded, (windows, 512), and how many tokens of each are real."""

    ids: NDArray[np.int32]
    real: NDArray[np.int32]
    asked: Chosen
    threshold: float | None


class NanoGuard:
    """Family `nanoguard`: config.json, model.safetensors and tiktoken.json of the conversion."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        # Live at once for a token: residual, its first state, normed, q, k, v, rotated q and k, answer;
        # then four times the width twice, and again as the square.
        row = 17 * 4 * weights.model_config(path)["n_embd"]
        return Footprint(weights.weights_bytes(path, torch.float32), 0, float(row))

    def preparer(self, spec: ModelSpec, path: Path) -> Texts:
        return Texts(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Guard:
        held = weights.read(weights.stored_tensors(path), torch.float32)
        return Guard(weights.model_config(path), {name: tensor.to(device) for name, tensor in held.items()})


class Texts:
    """Turns texts into padded windows. Tokenising releases the interpreter."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        config = weights.model_config(path)
        self._spec = spec
        self._length = int(config["sequence_len"])
        self._labels = Labels(spec.id, config["id2label"].values(), spec.labels)
        self._encoding = _encoding(path)
        self._begin = self._encoding.encode_single_token(BEGIN)
        self._pad = self._encoding.encode_single_token(PAD)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        extract = extract_options(task, options)
        asked = self._labels.choose(extract.labels)
        return [self._one(item, extract, asked, at) for at, item in enumerate(items)]

    def _one(self, item: Item, options: ExtractOptions, asked: Chosen, at: int) -> Prepared | EngineError:
        try:
            tokens = self._encoding.encode_ordinary(only_text(item))
            spans = fit(len(tokens), self._length - 1, OVERLAP, self._spec, options.overflow)
        except EngineError as error:
            return error.at(at)
        ids = np.full((len(spans), self._length), self._pad, np.int32)
        ids[:, 0] = self._begin
        for row, span in zip(ids, spans, strict=True):
            row[1 : 1 + len(span)] = tokens[span.start : span.end]
        real = np.array([1 + len(span) for span in spans], np.int32)
        read = spans[-1].end
        usage = Usage(input_tokens=1 + read, truncated=int(read < len(tokens)))
        return Prepared(ids.size, Text(ids, real, asked, options.threshold), ids.nbytes, usage)


class Guard:
    """The weights by the names of the reference, and its forward pass over them."""

    def __init__(self, config: dict[str, Any], held: dict[str, Tensor]) -> None:
        self._held = held
        self._heads = int(config["n_head"])
        self._layers = int(config["n_layer"])
        self._names = in_order(config["id2label"])
        self._rotation = _rotation(config["sequence_len"], config["n_embd"] // self._heads, self._device)

    @property
    def _device(self) -> torch.device:
        """Asked each time: a model that was parked may come back to another card."""
        return self._held["cls_head.weight"].device

    @torch.inference_mode()
    def run(self, jobs: Sequence[Prepared]) -> list[Extracted | EngineError]:
        texts: list[Text] = [job.payload for job in jobs]
        ids = np.concatenate([text.ids for text in texts])
        real = np.concatenate([text.real for text in texts])
        chances = np.concatenate(
            [
                self._chances(ids[i : i + WINDOWS_AT_ONCE], real[i : i + WINDOWS_AT_ONCE])
                for i in range(0, len(ids), WINDOWS_AT_ONCE)
            ]
        )
        ends = np.cumsum([len(text.ids) for text in texts])
        return [
            self._answer(text, windows)
            for text, windows in zip(texts, np.split(chances, ends[:-1]), strict=True)
        ]

    def tensors(self) -> Mapping[str, Tensor]:
        return self._held | dict(zip(("cos", "sin"), self._rotation, strict=True))

    def unload(self) -> None:
        self._held.clear()
        self._rotation = torch.empty(0), torch.empty(0)
        trim()

    def _answer(self, text: Text, chances: NDArray[np.float32]) -> Extracted | EngineError:
        worst = chances[chances[:, self._names.index(INJECTION)].argmax()]
        try:
            found = text.asked.classified(dict(zip(self._names, worst.tolist(), strict=True)), text.threshold)
        except EngineError as error:
            return error
        return Extracted(classifications=found)

    def _chances(self, ids: NDArray[np.int32], real: NDArray[np.int32]) -> NDArray[np.float32]:
        """(windows, classes). Padding takes part in attention and not in the mean."""
        held = self._held
        tokens = torch.from_numpy(ids).to(self._device)
        lengths = torch.from_numpy(real).to(self._device)
        x = first = _norm(F.embedding(tokens, held["transformer.wte.weight"]))
        for i in range(self._layers):
            x = held["resid_lambdas"][i] * x + held["x0_lambdas"][i] * first
            x = x + self._attention(_norm(x), f"transformer.h.{i}.attn")
            hidden = F.linear(_norm(x), held[f"transformer.h.{i}.mlp.c_fc.weight"]).relu_().square_()
            x = x + F.linear(hidden, held[f"transformer.h.{i}.mlp.c_proj.weight"])
        seen = torch.arange(tokens.shape[1], device=self._device) < lengths[:, None]
        mean = (_norm(x) * seen[..., None]).sum(1) / lengths[:, None]
        mean = F.layer_norm(mean, mean.shape[-1:], held["cls_norm.weight"], held["cls_norm.bias"])
        logits = F.linear(mean, held["cls_head.weight"], held["cls_head.bias"])
        chances: NDArray[np.float32] = logits.softmax(-1).cpu().numpy()
        return chances

    def _attention(self, x: Tensor, name: str) -> Tensor:
        def heads(part: str) -> Tensor:
            projected = F.linear(x, self._held[f"{name}.{part}.weight"])
            return projected.view(*x.shape[:2], self._heads, -1).transpose(1, 2)

        query, key = (_norm(self._rotated(heads(part))) for part in ("c_q", "c_k"))
        attended = F.scaled_dot_product_attention(query, key, heads("c_v"))
        return F.linear(attended.transpose(1, 2).flatten(2), self._held[f"{name}.c_proj.weight"])

    def _rotated(self, x: Tensor) -> Tensor:
        cos, sin = self._rotation
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos + right * sin, right * cos - left * sin], -1)


def _norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:])


def _rotation(length: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines (length, width / 2), rounded to bfloat16 as the model was trained with them."""
    turns = 1.0 / ROPE_BASE ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), turns)
    return angles.cos().bfloat16().float().to(device), angles.sin().bfloat16().float().to(device)


def _encoding(path: Path) -> tiktoken.Encoding:
    held = json.loads((path / "tiktoken.json").read_text("utf-8"))
    ranks = {base64.b64decode(token): rank for token, rank in held["mergeable_ranks"].items()}
    return tiktoken.Encoding(
        held["name"], pat_str=held["pattern"], mergeable_ranks=ranks, special_tokens=held["special_tokens"]
    )


FAMILY = NanoGuard()
