"""What is asked of a model that reads both texts and images, as jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer

from engine.adapters.family import Prepared
from engine.adapters.forward import weights
from engine.adapters.preparing.kinds import extract_options, only_image, sigmoid
from engine.adapters.preparing.tokens import CHARACTERS_PER_TOKEN, prompted, text_of
from engine.adapters.vision import asked
from engine.adapters.vision.pictures import Picture, picture
from engine.adapters.vision.processors import Processor
from engine.adapters.vision.vectors import Wanted
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import EncodeOptions, Item, Options, Overflow, ScoreOptions, Task, Usage

TEMPLATE = "This is a photo of {label}."
"""As transformers' pipeline."""
ALWAYS_FULL = frozenset(["siglip", "siglip2"])
"""Models trained on texts filled up to their length, without a mask."""
TEXTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    ids: tuple[int, ...]
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Encode:
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Score:
    sigmoid: bool


@dataclass(frozen=True, slots=True)
class Classify:
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    threshold: float | None
    top: int | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What to make of one input, or of a query and one input."""

    parts: tuple[Text | Picture, ...]
    do: Encode | Score | Classify


class TextSide:
    """The tokenizer of the model directory `path`, and batches of its texts for `device`."""

    def __init__(self, path: Path, device: torch.device | None = None) -> None:
        config = weights.model_config(path)
        text = config.get("text_config") or {}
        self._device = device
        self._tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        self._full = config.get("model_type") in ALWAYS_FULL
        default = 64 if self._full else 77
        self.length = int(text.get("max_position_embeddings", default))

    def text(self, text: str) -> Text:
        """Cut to the model's length, where it is longer."""
        clipped = text[: self.length * CHARACTERS_PER_TOKEN]
        padding = "max_length" if self._full else False
        whole = self._tokenizer(clipped, add_special_tokens=True)["input_ids"]
        ids = self._tokenizer(clipped, truncation=True, max_length=self.length, padding=padding)["input_ids"]
        return Text(tuple(ids), len(whole) > self.length or len(clipped) < len(text))

    def order(self, texts: Sequence[Text]) -> Iterator[list[int]]:
        """Places of texts that run together: those of one length, so that none is padded."""
        alike: dict[int, list[int]] = defaultdict(list)
        for place, text in enumerate(texts):
            alike[len(text.ids)].append(place)
        for places in alike.values():
            for start in range(0, len(places), TEXTS_AT_ONCE):
                yield places[start : start + TEXTS_AT_ONCE]

    def batches(self, texts: Sequence[Text]) -> Iterator[dict[str, Tensor]]:
        for places in self.order(texts):
            ids = torch.tensor([texts[place].ids for place in places], device=self._device)
            yield (
                {"input_ids": ids}
                if self._full
                else {
                    "input_ids": ids,
                    "attention_mask": torch.ones_like(ids),
                }
            )


class PairPreparer:
    """Tokenises texts, reads images' headers, and says early what the model cannot do."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        config = weights.model_config(path)
        self._spec = spec
        self._texts = TextSide(path)
        self._processor = Processor.of(path)
        patch = int((config.get("vision_config") or {}).get("patch_size", 16))
        self._patch_pixels = patch * patch

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        match options:
            case EncodeOptions():
                wanted = Encode(Wanted.of(self._spec, options, instruction=True))
                role = "query" if options.is_query else "document"
                return self._each(items, wanted, role, options.instruction, options.overflow)
            case ScoreOptions(query):
                asked_by = self._part(query, None, "query", options.instruction, options.overflow)
                score = Score(sigmoid(self._spec, options))
                return self._each(items, score, "document", None, options.overflow, asked_by)
            case _:
                return self._labelled(task, items, options)

    def _labelled(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        extract = extract_options(task, options)
        labels = asked.labels_of(self._spec, extract)
        if not labels:
            raise InvalidInput(f"{self._spec.id} tells which label fits: send labels.")
        template = asked.text_of(extract.extra, "template", 1000) or self._spec.options.get(
            "template", TEMPLATE
        )
        if "{label}" not in template:
            raise InvalidInput("options.template holds {label}.")
        texts = tuple(template.replace("{label}", label) for label in labels)
        # no text has more tokens than characters, but for those that frame it
        if long := [t for t in texts if len(t) + 2 > self._texts.length and self._texts.text(t).cut]:
            raise InputTooLong(
                f"The label {long[0][:50]!r}... is longer than the {self._texts.length} tokens that "
                f"{self._spec.id} takes.",
                max_length=self._texts.length,
            )
        threshold = asked.threshold_of(self._spec, extract)
        do = Classify(labels, texts, threshold, asked.top_of(self._spec, extract.extra, None))
        return self._each(items, do, "document", None, extract.overflow)

    def _each(
        self,
        items: Sequence[Item],
        do: Encode | Score | Classify,
        role: str,
        instruction: str | None,
        overflow: Overflow,
        query: Text | Picture | None = None,
    ) -> list[Prepared | EngineError]:
        prepared: list[Prepared | EngineError] = []
        before = () if query is None else (query,)
        for index, item in enumerate(items):
            try:
                image = only_image(item) if isinstance(do, Classify) else None
                part = (
                    picture(self._processor, image, index)
                    if image
                    else self._part(item, index, role, instruction, overflow)
                )
            except EngineError as error:
                prepared.append(error.at(index))
                continue
            first = not any(isinstance(each, Prepared) for each in prepared)
            counted = (*before, part) if first else (part,)
            prepared.append(_prepared(Asked((*before, part), do), counted, self._patch_pixels))
        return prepared

    def _part(
        self, item: Item, index: int | None, role: str, instruction: str | None, overflow: Overflow
    ) -> Text | Picture:
        """Raises InvalidInput, InputTooLong."""
        if item.images:
            return picture(self._processor, only_image(item), 0 if index is None else index)
        sent = text_of(item, index)
        text = self._texts.text(prompted(self._spec.prompts, role, instruction, sent))
        policy = Overflow(self._spec.overflow) if overflow is Overflow.DEFAULT else overflow
        if text.cut and policy is not Overflow.TRUNCATE:
            raise InputTooLong(
                f"a text of {len(sent)} characters is longer than the {self._texts.length} tokens that "
                f"{self._spec.id} takes; overflow_policy: truncate_text cuts it",
                max_length=self._texts.length,
            )
        return text


def _prepared(job: Asked, counted: Sequence[Text | Picture], patch_pixels: int) -> Prepared:
    """`counted` is what it costs: the query of a score is read once, and counts for the first item."""
    usage, nbytes, cost = Usage(), 0, 0
    for part in counted:
        if isinstance(part, Picture):
            usage += Usage(images=1)
            nbytes += len(part.image.data)
            cost += max(1, part.cost // patch_pixels)
        else:
            usage += Usage(input_tokens=len(part.ids), truncated=int(part.cut))
            nbytes += 8 * len(part.ids)
            cost += len(part.ids)
    return Prepared(cost, job, nbytes, usage)
