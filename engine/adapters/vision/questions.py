"""A query and a document, both of texts and images, as the question that Qwen3-VL-Reranker answers.

arXiv 2601.04720, as its `qwen3_vl_reranker.py` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.adapters.family import Prepared
from engine.adapters.preparing.kinds import sigmoid
from engine.adapters.vision.messages import IMAGE, SYSTEM, USER, Message, Writer, text_and_images
from engine.catalog import ModelSpec
from engine.errors import EngineError
from engine.requests import Item, Options, ScoreOptions, Task

JUDGE = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
INSTRUCTION = "Given a search query, retrieve relevant candidates that answer the query."


@dataclass(frozen=True, slots=True)
class QuestionJob:
    message: Message
    sigmoid: bool


class QuestionPreparer:
    """Only the documents' texts are ever cut."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._writer = Writer(spec, path)
        self.cutter = self._writer.tokenizer.cutter

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        assert isinstance(options, ScoreOptions), "the router sends score requests only"
        asked, chances = self._asked(options), sigmoid(self._spec, options)
        found: list[Prepared | EngineError] = []
        for index, item in enumerate(items):
            lead = f"{asked}{IMAGE * len(item.images)}"
            images = (*options.query.images, *item.images)
            try:
                text = text_and_images(item, index)
                message = self._writer.message(lead, text, images, index, options.overflow)
            except EngineError as error:
                found.append(error.at(index))
                continue
            found.append(self._writer.prepared(QuestionJob(message, chances), (message,)))
        return found

    def _asked(self, options: ScoreOptions) -> str:
        """What stands before a document. Raises InvalidInput for a query that is none."""
        query, told = text_and_images(options.query, None), options.instruction
        if told is None:
            told = self._spec.prompts.get("instruction", INSTRUCTION)
        shown = IMAGE * len(options.query.images)
        return f"{SYSTEM}{JUDGE}{USER}<Instruct>: {told}<Query>:{shown}{query}\n<Document>:"
