"""Texts and what is asked of them, as jobs: the tokenised half of the text encoder."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.adapters.family import Prepared
from engine.adapters.forward import weights
from engine.adapters.forward.packed import Ids
from engine.adapters.forward.pooling import POOLINGS
from engine.adapters.forward.quantize import DTYPES
from engine.adapters.preparing.tokens import Room, TextTokenizer, known, max_tokens, prompted, text_of
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import EncodeOptions, Item, Options, OutputType, Task, Usage

_PLACE = "\ufdd0"
"""Stands in a prompt for token ids; no character, by Unicode."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job asks of the forward pass; none of it changes the pass."""

    outputs: tuple[OutputType, ...]
    pooling: str
    normalize: bool
    dimensions: int | None
    dtype: str


@dataclass(frozen=True, slots=True)
class EncodeJob:
    ids: Ids
    counted: NDArray[np.bool_] | None
    """Multivector: which tokens have a vector in the answer; None for all."""
    wanted: Wanted


def outputs_of(spec: ModelSpec) -> tuple[OutputType, ...]:
    return spec.outputs or (OutputType.DENSE,)


class TextPreparer:
    """Tokenises, and says early what the model cannot do."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        config = weights.model_config(path)
        self._spec = spec
        self._tokenizer = TextTokenizer(path)
        self.cutter = self._tokenizer.cutter
        self._max_tokens = max_tokens(spec, config)
        self._vocabulary = int(config["vocab_size"])
        self._dims = spec.dims.get(OutputType.DENSE) or int(config.get("hidden_size") or config["dim"])
        self._pooling = str(spec.options.get("pooling") or spec.pooling or _stored_pooling(path))
        markers = spec.options.get("markers", {}) if OutputType.MULTIVECTOR in outputs_of(spec) else {}
        self._markers = {role: self._tokenizer.id_of(token) for role, token in markers.items()}
        self._skipped = self._punctuation() if markers and spec.options.get("skip_punctuation") else None

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        assert isinstance(options, EncodeOptions), "the router sends encode requests only"
        wanted = self._wanted(options)
        room = Room.of(self._spec, self._max_tokens, options.overflow)
        role = "query" if options.is_query else "document"
        prepared: list[Prepared | EngineError] = []
        texts: list[str] = []
        places: list[int] = []
        for index, item in enumerate(items):
            try:
                if item.tokens is not None:
                    ids = self._given(item.tokens, role, options.instruction, index)
                    prepared.append(self._job(ids, "", role, room, wanted, index))
                    continue
                text = text_of(item, index)
                text = prompted(self._spec.prompts, role, options.instruction, text)
                texts.append(text)
                places.append(index)
                prepared.append(InvalidInput())
            except EngineError as error:
                prepared.append(error)
        for index, text, ids in zip(
            places, texts, self._tokenizer.ids([room.clip(t) for t in texts]), strict=True
        ):
            try:
                prepared[index] = self._job(ids, text, role, room, wanted, index)
            except EngineError as error:
                prepared[index] = error
        return prepared

    def _given(self, tokens: Sequence[int], role: str, instruction: str | None, index: int) -> Ids:
        """Token ids that the client made, less the special tokens that are put around any text."""
        ids = self._tokenizer.single.strip(np.array(known(tokens, self._vocabulary, index), np.int32))
        before, _, after = prompted(self._spec.prompts, role, instruction, _PLACE).partition(_PLACE)
        if not before and not after:
            return ids
        first, last = self._tokenizer.ids([before, after])
        return np.concatenate([first, ids, last])

    def _job(self, ids: Ids, text: str, role: str, room: Room, wanted: Wanted, index: int) -> Prepared:
        marker = self._markers.get(role)
        frame = self._tokenizer.single
        taken = frame.length + (marker is not None)
        ids, cut = room.fit(ids, text, room.tokens - taken, index)
        if marker is not None:
            ids = np.concatenate([np.array([marker], np.int32), ids])
        ids = frame.fill(ids).ids
        if not len(ids):
            raise InvalidInput(f"item {index} has no tokens", item=index)
        if int(ids.max()) >= self._vocabulary:
            raise InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        counted = None
        if self._skipped is not None and role == "document":
            counted = ~np.isin(ids, self._skipped)
        usage = Usage(input_tokens=len(ids), truncated=int(cut))
        return Prepared(len(ids), EncodeJob(ids, counted, wanted), ids.nbytes, usage)

    def _wanted(self, options: EncodeOptions) -> Wanted:
        able = outputs_of(self._spec)
        outputs = tuple(dict.fromkeys(options.output_types)) or able[:1]
        dims = sorted({self._dims, *self._spec.matryoshka})
        pooling = options.pooling or self._pooling
        checks = [("output_type", o.value, o in able, [kind.value for kind in able]) for o in outputs] + [
            ("output_dtype", options.output_dtype, options.output_dtype in DTYPES, DTYPES),
            ("pooling", pooling, pooling in POOLINGS, POOLINGS),
        ]
        if options.dimensions is not None:
            fits = options.dimensions in dims and OutputType.DENSE in outputs
            checks.append(("dimensions", str(options.dimensions), fits, [f"{n} (dense)" for n in dims]))
        for option, value, possible, choices in checks:
            if not possible:
                can = ", ".join(map(str, choices))
                raise InvalidInput(f"{self._spec.id} cannot do {option} {value!r}; it can do: {can}")
        defaults = self._spec.options
        normal = options.normalize if options.normalize is not None else defaults.get("normalize")
        return Wanted(
            outputs,
            pooling,
            self._spec.normalize if normal is None else bool(normal),
            options.dimensions or defaults.get("dimensions"),
            options.output_dtype,
        )

    def _punctuation(self) -> Ids:
        found = [ids[0] for ids in self._tokenizer.ids(list(string.punctuation)) if len(ids) == 1]
        return np.array(found, np.int32)


def _stored_pooling(path: Path) -> str:
    """What the directory itself says, for an entry that says nothing; mean when neither does."""
    file = path / "1_Pooling" / "config.json"
    if not file.is_file():
        return "mean"
    stored = json.loads(file.read_text("utf-8"))
    names = {"cls_token": "cls", "lasttoken": "last", "max_tokens": "max", "weightedmean_tokens": "weighted"}
    return next((how for key, how in names.items() if stored.get(f"pooling_mode_{key}")), "mean")
