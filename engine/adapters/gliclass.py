"""Texts into classes that the caller names, all of them judged in one pass: GLiClass uni-encoders.

Labels and text are one sequence. Only the text is ever cut; a text longer than one window is read in several
where `overflow: window` says so, and their chances are averaged by length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from gliclass import GLiClassModel, GLiClassModelConfig  # type: ignore[import-untyped]
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.forward.packed import Encoder, Ids, workspace_per_token
from engine.adapters.labelling.open_labels import OpenLabels, Thresholds, Wanted, flag
from engine.adapters.preparing.kinds import only_texts
from engine.adapters.preparing.tokens import TextTokenizer, max_tokens
from engine.adapters.preparing.windows import fit
from engine.adapters.zero_shot import classified
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput, NotFinite
from engine.requests import Extracted, ExtractOptions, Item, Options, Output, Task, Usage

LABEL, SEPARATOR = "<<LABEL>>", "<<SEP>>"
THRESHOLD = 0.5
MAX_TOKENS = 1024
"""What the reference pipeline cuts its input to, where the entry does not say."""
OVERLAP = 64
BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""


@dataclass(frozen=True, slots=True)
class ClassesJob:
    """One text, as the sequences that the model reads; `lengths` are the tokens of the text in each."""

    windows: tuple[Ids, ...]
    lengths: tuple[int, ...]
    wanted: Wanted
    multi_label: bool


class ClassesPreparer:
    """Tokenises labels and text together, so that pieces are those of the reference, and lays windows."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        config = _config(path)
        self._spec = spec
        self._labels = OpenLabels(spec)
        self._tokenizer = TextTokenizer(path)
        self.cutter = self._tokenizer.cutter
        self._first = bool(config.prompt_first)
        encoder = config.encoder_config
        bounds = encoder.to_dict() if encoder.model_type != "deberta-v2" else {}
        limited = spec if spec.max_tokens else spec.model_copy(update={"max_tokens": MAX_TOKENS})
        self._room = max_tokens(limited, bounds) - self._tokenizer.single.length
        self._vocabulary = int(config.vocab_size)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if task is not Task.EXTRACT or not isinstance(options, ExtractOptions):
            raise InvalidInput(f"This model finds labels of texts; it cannot {task}.")
        if options.output_schema is not None:
            raise InvalidInput("This model takes labels and cannot follow an output_schema.")
        wanted = self._labels.choose(options.labels, Thresholds.of(self._spec, options, THRESHOLD))
        multi = flag(self._spec, options, "multi_label", True)
        prompt = "".join(f"{LABEL}{label}" for label in wanted.prompts) + SEPARATOR
        prompt += options.instruction or ""
        texts = only_texts(items)
        good = [text for text in texts if isinstance(text, str)]
        whole = [prompt + text if self._first else text + prompt for text in good]
        encodings = iter(self._tokenizer.encodings(whole))
        found: list[Prepared | EngineError] = []
        for index, text in enumerate(texts):
            if isinstance(text, EngineError):
                found.append(text)
                continue
            encoding = next(encodings)
            ids = np.array(encoding.ids, np.int32)
            ends = np.array([end for _, end in encoding.offsets], np.int64)
            border = int(np.searchsorted(ends, len(prompt) if self._first else len(text), "right"))
            asked, read = (ids[:border], ids[border:]) if self._first else (ids[border:], ids[:border])
            found.append(self._one(asked, read, wanted, multi, options, index))
        return found

    def _one(
        self, asked: Ids, ids: Ids, wanted: Wanted, multi: bool, options: ExtractOptions, index: int
    ) -> Prepared | EngineError:
        room = self._room - len(asked)
        if room < self._room // 4:
            return InputTooLong(
                f"The labels take {len(asked)} tokens of the {self._room} that {self._spec.id} reads at "
                "once. Ask for fewer at once.",
                item=index,
            )
        try:
            spans = fit(len(ids), room, min(OVERLAP, room // 4), self._spec, options.overflow)
        except EngineError as error:
            return error.at(index)
        if max(int(part.max()) for part in (asked, ids) if len(part)) >= self._vocabulary:
            return InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        windows = tuple(self._sequence(asked, ids[span.start : span.end]) for span in spans)
        cost = sum(map(len, windows))
        lengths = tuple(max(1, len(span)) for span in spans)
        usage = Usage(input_tokens=cost, truncated=int(spans[-1].end < len(ids)))
        return Prepared(cost, ClassesJob(windows, lengths, wanted, multi), 4 * cost, usage)

    def _sequence(self, asked: Ids, read: Ids) -> Ids:
        parts = (asked, read) if self._first else (read, asked)
        return self._tokenizer.single.fill(np.concatenate(parts)).ids


class GliClass:
    """A GLiClass model's weights."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._parts = cast(Any, model).model
        self._encoder = Encoder(self._parts.encoder_model)

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(ClassesJob, job.payload) for job in jobs]
        windows = [(ids, len(payload.wanted)) for payload in payloads for ids in payload.windows]
        left = iter(self._logits(windows))
        return [self._answer(payload, [next(left) for _ in payload.windows]) for payload in payloads]

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _logits(self, windows: Sequence[tuple[Ids, int]]) -> list[NDArray[np.float32]]:
        """A row of one logit a label for each window."""
        found: dict[int, NDArray[np.float32]] = {}
        with torch.inference_mode():
            hidden = self._encoder.hidden([ids for ids, _ in windows])
            layout = hidden.layout
            # its layers pool over whatever is there, padding too: so they see sequences of one length
            for segment in layout.segments:
                places = layout.order[segment.first : segment.first + segment.count].tolist()
                ids = torch.from_numpy(np.stack([windows[place][0] for place in places]).astype(np.int64))
                ids = ids.to(hidden.states.device)
                most = max(windows[place][1] for place in places)
                logits, *_ = self._parts.process_encoder_output(
                    ids, torch.ones_like(ids), segment.of(hidden.states), max_num_classes=most
                )
                rows = logits.float().cpu().numpy()
                found.update(
                    (place, row[: windows[place][1]]) for place, row in zip(places, rows, strict=True)
                )
        return [found[place] for place in range(len(windows))]

    def _answer(self, job: ClassesJob, logits: Sequence[NDArray[np.float32]]) -> Extracted | EngineError:
        rows = torch.from_numpy(np.stack(logits))
        if not torch.isfinite(rows).all():
            return NotFinite()
        chances = (rows.sigmoid() if job.multi_label else rows.softmax(-1)).numpy()
        row = np.average(chances, axis=0, weights=job.lengths).tolist()
        found = classified(job.wanted, row, job.multi_label)
        return Extracted(classifications=found)


class GliClassFamily:
    """GLiClass directories of the library `gliclass`, architecture uni-encoder."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        per_token = workspace_per_token(_config(path).encoder_config.to_dict(), dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> ClassesPreparer:
        return ClassesPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> GliClass:
        config, dtype = _config(path), weights.dtype_on(device, spec.dtype, path)
        stored = weights.stored_tensors(path)
        state = weights.read(stored, dtype) if torch.device(device).type == "cpu" else weights.mapped(stored)
        model = weights.given(GLiClassModel, config, state, dtype, where=str(path))
        return GliClass(cast(PreTrainedModel, cast(Any, model).to(device).eval().requires_grad_(False)))


def _config(path: Path) -> Any:
    """Raises BadWeights for the architectures that do not run here."""
    config = GLiClassModelConfig.from_pretrained(path, local_files_only=True)
    other = {
        f"architecture {config.architecture_type}": config.architecture_type != "uni-encoder",
        "segment embeddings": config.use_segment_embeddings,
        "squeezed layers": config.squeeze_layers,
        "another layer than the last": config.encoder_layer_id != -1,
        "a calibrator": config.use_calibrator,
    }
    if wrong := [what for what, there in other.items() if there]:
        raise weights.BadWeights(f"{path} is a GLiClass with {wrong[0]}, which does not run here")
    return config


FAMILY = GliClassFamily()
