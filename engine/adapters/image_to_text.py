"""Images into text by an encoder and a decoder (Donut, Nougat, TrOCR): fields as JSON, or text as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, long, ones_like
from transformers import AutoTokenizer
from transformers.models.donut.processing_donut import DonutProcessor

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.preparing.kinds import only_image
from engine.adapters.vision import asked, writer, writing
from engine.adapters.vision.pictures import Look, picture
from engine.adapters.vision.processors import Processor
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import Extracted, Item, Options, Task

QUESTION = "{question}"


class ImageToTextPreparer:
    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._processor = Processor.of(path)
        self._tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        decoder = weights.model_config(path)["decoder"]
        self._defaults = writing.defaults_of(path)
        self._context = int(decoder.get("max_position_embeddings", 512))
        start = decoder.get("decoder_start_token_id") or weights.model_config(path).get(
            "decoder_start_token_id"
        )
        self._start = self._tokenizer.bos_token_id if start is None else int(start)
        self._vocabulary = int(decoder["vocab_size"])

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        extract = writing.extraction(task, options)
        if extract.labels:
            raise InvalidInput(f"{self._spec.id} reads images and knows no labels.")
        prompt = self._prompt(extract.instruction or asked.text_of(extract.extra, "question"), extract.extra)
        pace = writing.pace_of(self._spec, extract.extra, self._context, len(prompt), self._defaults)

        def one(item: Item, index: int) -> Prepared:
            found = picture(self._processor, only_image(item), index)
            return writing.prepared(found, prompt, pace, None)

        return writing.each(items, one)

    def _prompt(self, question: str | None, extra: Mapping[str, Any]) -> list[int]:
        """Tokens that the answer goes on from. Raises InvalidInput."""
        text = asked.text_of(extra, "task_prompt") or str(self._spec.options.get("task_prompt", ""))
        if QUESTION in text:
            if not question:
                raise InvalidInput(
                    f"{self._spec.id} answers a question: send instruction (or options.question)."
                )
            text = text.replace(QUESTION, question)
        elif question:
            raise InvalidInput(f"{self._spec.id} takes no question; leave the instruction out.")
        if not text:
            return [self._start]
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if not ids or max(ids) >= self._vocabulary:
            raise InvalidInput("The task prompt holds a token that the model does not have.")
        return ids


class TextReading:
    """Tokens into text, or into the fields that Donut marks with tokens of their own."""

    def __init__(self, tokenizer: Any, fields: bool) -> None:
        self._tokenizer = tokenizer
        # its method reads fields; it is made without an image processor, which that does not use
        self._donut = _FieldReader(tokenizer) if fields else None

    @property
    def ends(self) -> Mapping[str, Any]:
        tokenizer = self._tokenizer
        found = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        never = {} if self._donut is None else {"bad_words_ids": [[tokenizer.unk_token_id]]}
        return {name: said for name, said in found.items() if said is not None} | never

    def prompts(self, ids: Tensor) -> Mapping[str, Tensor]:
        return {"decoder_input_ids": ids, "decoder_attention_mask": ones_like(ids, dtype=long)}

    def answer(self, ids: Sequence[int], job: writing.WriteJob, look: Look) -> Extracted:
        text = self._tokenizer.decode(ids, skip_special_tokens=self._donut is None)
        if self._donut is None:
            return Extracted(data={"text": text.strip()})
        return Extracted(data={"fields": self._donut.fields(text)})


class _FieldReader(DonutProcessor):
    """Donut's own reader of fields, from a tokenizer alone."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def fields(self, text: str) -> Any:
        """As its model card: special tokens and the task's own, the first, go; the rest is a tree."""
        for token in (self.tokenizer.eos_token, self.tokenizer.pad_token):
            text = text.replace(token, "") if token else text
        tree = re.sub(r"<.*?>", "", text, count=1).strip()
        return self.token2json(tree)  # type: ignore[no-untyped-call]


class ImageToTextFamily:
    """`VisionEncoderDecoderModel`. Options: `task_prompt` that may hold `{question}`, `output` (json or
    text), `max_new_tokens`, `num_beams`."""

    cost_unit: ClassVar[str] = "pixels"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        return writing.footprint(spec, path)

    def preparer(self, spec: ModelSpec, path: Path) -> ImageToTextPreparer:
        return ImageToTextPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> writer.Writer:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        reading = TextReading(tokenizer, spec.options.get("output", "text") == "json")
        return writer.loaded(spec, path, device, Processor.of(path), reading)


FAMILY = ImageToTextFamily()
