"""Images of pages, and questions about them, into vectors that MaxSim compares: ColPali and its like.

Documents are found by how they look, without reading them first (arXiv 2407.01449). The networks and what
they are shown are transformers' own. A cost of 1 is one token of a question or one patch of an image.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForPreTraining, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import linear, weights
from engine.adapters.forward.packed import Ids, workspace_per_token
from engine.adapters.forward.quantize import DTYPES, quantize
from engine.adapters.forward.similarity import maxsim, scored
from engine.adapters.preparing.kinds import only_image, sigmoid
from engine.adapters.preparing.tokens import Room, TextTokenizer, text_of
from engine.adapters.vision.pictures import Picture, picture, see
from engine.adapters.vision.processors import CHANNELS
from engine.adapters.vision.shown import Shown, configuration
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput, NotFinite
from engine.requests import (
    Encoded,
    EncodeOptions,
    Item,
    Options,
    Output,
    OutputType,
    ScoreOptions,
    Task,
    Usage,
)

BASE_BYTES = 32 << 20
COPIES = 16
"""Rows as wide as the vision tower that one of its layers holds at once for each patch."""
TEXTS_AT_ONCE = 64
LONGEST = 512
"""Tokens of a question where the entry sets no bound."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    ids: Ids
    cut: bool


@dataclass(frozen=True, slots=True)
class PageJob:
    """The vectors of one input; of two, how well the second answers the first."""

    parts: tuple[Question | Picture, ...]
    dtype: str = "float32"
    sigmoid: bool = False


class PagePreparer:
    """Tokenises questions, reads images' headers, and says early what the model cannot do."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._shown = Shown(path)
        self._tokenizer = TextTokenizer(path)
        self.cutter = self._tokenizer.cutter

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if isinstance(options, ScoreOptions):
            self._refuse({"instruction": options.instruction})
            room = self._room(options)
            query = self._part(options.query, None, room)
            chances = sigmoid(self._spec, options)
            return self._each(items, room, lambda part: PageJob((query, part), sigmoid=chances))
        assert isinstance(options, EncodeOptions), "the router sends encode and score requests only"
        kinds = {kind.value for kind in options.output_types} - {OutputType.MULTIVECTOR.value}
        self._refuse(
            {
                "output_type": ", ".join(sorted(kinds)) or None,
                "output_dtype": None if options.output_dtype in DTYPES else options.output_dtype,
                "dimensions": options.dimensions,
                "pooling": options.pooling,
                "instruction": options.instruction,
                "normalize": False if options.normalize is False else None,
            }
        )
        return self._each(items, self._room(options), lambda part: PageJob((part,), options.output_dtype))

    def _refuse(self, asked: Mapping[str, object]) -> None:
        for option, value in asked.items():
            if value is not None:
                raise InvalidInput(
                    f"{self._spec.id} cannot do {option} {value!r}; it makes multivectors of length 1 "
                    f"({', '.join(DTYPES)}) of texts and images as they are"
                )

    def _room(self, options: EncodeOptions | ScoreOptions) -> Room:
        return Room.of(self._spec, self._spec.max_tokens or LONGEST, options.overflow)

    def _each(self, items: Sequence[Item], room: Room, job: Any) -> list[Prepared | EngineError]:
        """The query of a score is read once, and counts for the first item."""
        found: list[Prepared | EngineError] = []
        counted = False
        for index, item in enumerate(items):
            try:
                made: PageJob = job(self._part(item, index, room))
            except EngineError as error:
                found.append(error.at(index))
                continue
            found.append(self._prepared(made, made.parts[-1:] if counted else made.parts))
            counted = True
        return found

    def _part(self, item: Item, index: int | None, room: Room) -> Question | Picture:
        """Raises InvalidInput, InputTooLong."""
        if item.images:
            return picture(self._shown.pictures, only_image(item), index or 0)
        text = text_of(item, index)
        (encoded,) = self._tokenizer.encodings([room.clip(text)])
        ids = np.array(encoded.ids, np.int32)
        kept, cut = room.fit(ids, text, max(1, room.tokens - self._shown.around), index)
        if cut:
            text = text[: encoded.offsets[len(kept) - 1][1]]
        return Question(self._shown.question(text), cut)

    def _prepared(self, job: PageJob, counted: Sequence[Question | Picture]) -> Prepared:
        usage, nbytes, cost = Usage(), 0, 0
        for part in counted:
            if isinstance(part, Picture):
                usage += Usage(images=1)
                nbytes += len(part.image.data)
                cost += max(1, part.cost // self._shown.patch_pixels)
            else:
                usage += Usage(input_tokens=len(part.ids), truncated=int(part.cut))
                nbytes += part.ids.nbytes
                cost += len(part.ids)
        return Prepared(cost, job, nbytes, usage)


class PageEncoder:
    """Weights of one network that reads questions and sees pages."""

    def __init__(self, model: PreTrainedModel, shown: Shown) -> None:
        self._model: Any = model
        self._shown = shown

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(PageJob, job.payload) for job in jobs]
        with torch.inference_mode():
            made = self._made(payloads)
            return [_answer(payload, [made[id(part)] for part in payload.parts]) for payload in payloads]

    def _made(self, payloads: Sequence[PageJob]) -> dict[int, Tensor | EngineError]:
        """Vectors by the identity of what they are of: each once, though it may be the query of many jobs."""
        parts = {id(part): part for payload in payloads for part in payload.parts}
        made: dict[int, Tensor | EngineError] = {}
        alike: dict[int, list[Question]] = defaultdict(list)
        for part in parts.values():
            if isinstance(part, Question):
                alike[len(part.ids)].append(part)
        for questions in alike.values():  # of one length, so that none is padded
            for start in range(0, len(questions), TEXTS_AT_ONCE):
                some = questions[start : start + TEXTS_AT_ONCE]
                made |= {id(one): rows for one, rows in zip(some, self._read(some), strict=True)}
        pictures = [part for part in parts.values() if isinstance(part, Picture)]
        seen = see(self._shown.page, self._model, pictures, lambda _, inputs: self._vectors(inputs))
        return made | {id(part): rows for part, rows in zip(pictures, seen, strict=True)}

    def _read(self, questions: Sequence[Question]) -> list[Tensor]:
        ids = torch.from_numpy(np.stack([one.ids for one in questions]).astype(np.int64))
        ids = ids.to(self._model.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self._model.config.model_type == "colpali":
            inputs["token_type_ids"] = torch.zeros_like(ids)
        return self._vectors(inputs)

    def _vectors(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Of each row of a batch (its tokens, dims), float32 on the CPU."""
        return list(self._model(**inputs, use_cache=False).embeddings.float().cpu())

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)


def _answer(job: PageJob, vectors: Sequence[Tensor | EngineError]) -> Output | EngineError:
    rows = []
    for found in vectors:
        if isinstance(found, EngineError):
            return found
        if not bool(found.isfinite().all()):
            return NotFinite()
        rows.append(found)
    if len(rows) == 1:
        return Encoded(multivector=quantize(rows[0].numpy(), job.dtype))
    query, document = rows
    return scored(maxsim(query, [document]), [job.sigmoid])[0]


class PageEncoderFamily:
    """Models of transformers' ColPaliForRetrieval and others of PROCESSORS; inputs: [text, image]."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.ENCODE, Task.SCORE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        config = configuration(path)
        said = spec.dims.get(OutputType.MULTIVECTOR)
        if said not in (None, config.embedding_dim):
            raise weights.BadWeights(
                f"the entry says dims {{multivector: {said}}}; the model makes {config.embedding_dim}"
            )
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        text, vision = config.vlm_config.text_config, config.vlm_config.vision_config
        width = int(getattr(vision, "embed_dim", None) or vision.hidden_size)
        # the states of all layers are kept to the end, though only the last are used
        kept = int(text.num_hidden_layers) * int(text.hidden_size)
        pixels = CHANNELS * int(vision.patch_size) ** 2 * 4
        per_patch = workspace_per_token(text.to_dict(), dtype.itemsize) + pixels
        per_patch += (kept + COPIES * width) * dtype.itemsize
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, per_patch)

    def preparer(self, spec: ModelSpec, path: Path) -> PagePreparer:
        return PagePreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> PageEncoder:
        shown = Shown(path)
        model = weights.load(
            AutoModelForPreTraining, path, device, weights.dtype_on(device, spec.dtype, path)
        )
        linear.pack(cast(Any, model).vlm)  # not the layer behind it, whose dtype is asked for
        return PageEncoder(model, shown)


FAMILY = PageEncoderFamily()
