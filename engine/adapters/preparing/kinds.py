"""What the families of one kind of input agree on: which items and options they refuse, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from engine.adapters.family import Prepared
from engine.adapters.labelling.open_labels import chance
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import ExtractOptions, Item, Media, Options, ScoreOptions, Task

T = TypeVar("T")

ACTIVATIONS = ("raw", "sigmoid")
"""Of scores."""
RAW_SCORES = "raw_scores"


def only_text(item: Item) -> str:
    """The text of an item that must hold nothing else. Raises InvalidInput."""
    if item.text is None or item.images or item.audio or item.video or item.document:
        raise InvalidInput(f"This model takes text, and nothing else; the item holds {_held(item)}.")
    try:
        item.text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"The text has a lone surrogate at {error.start}; it is no Unicode.") from error
    return item.text


def each_text(
    items: Sequence[Item],
    read: Callable[[list[str]], Iterable[T]],
    one: Callable[[str, T, int], Prepared | EngineError],
) -> list[Prepared | EngineError]:
    """The texts of items that hold nothing else, which are `read` together: `one` has each, as it was read,
    and its index."""
    texts = _texts(items)
    found = iter(read([text for text in texts if isinstance(text, str)]))
    return [
        text if isinstance(text, EngineError) else one(text, next(found), index)
        for index, text in enumerate(texts)
    ]


def only_image(item: Item) -> Media:
    """The one image of an item that must hold nothing else. Raises InvalidInput."""
    if item.text is not None or item.audio or item.video or item.document or len(item.images) != 1:
        raise InvalidInput(
            f"This model takes one image an item, and nothing else; the item holds {_held(item)}."
        )
    return item.images[0]


def extract_options(task: Task, options: Options) -> ExtractOptions:
    """The options of an extraction by a model whose labels are fixed. Raises InvalidInput for what such
    a model cannot follow."""
    if task is not Task.EXTRACT or not isinstance(options, ExtractOptions):
        raise InvalidInput(f"This model finds labels in its input; it cannot {task}.")
    if options.output_schema is not None:
        raise InvalidInput("This model gives its own labels and cannot follow an output_schema.")
    if options.instruction is not None:
        raise InvalidInput("This model gives its own labels and cannot follow an instruction.")
    if options.extra.get(RAW_SCORES):
        raise InvalidInput("This model's scores have one form only; leave raw_scores out.")
    if options.threshold is not None:
        chance(options.threshold)
    return options


def sigmoid(spec: ModelSpec, options: ScoreOptions) -> bool:
    """Whether scores are chances: what the request says, else the entry. Raises InvalidInput for neither."""
    activation = options.activation or spec.activation
    if activation not in ACTIVATIONS:
        raise InvalidInput(f"no activation {activation!r}; there are: {', '.join(ACTIVATIONS)}")
    return activation == "sigmoid"


def raw_scores(options: Options) -> tuple[bool, Options]:
    """Whether the scores that chances are made of are wanted instead, and the options without that: for
    the families that have such. Raises InvalidInput when it is neither true nor false."""
    if not isinstance(options, ExtractOptions) or RAW_SCORES not in options.extra:
        return False, options
    raw = options.extra[RAW_SCORES]
    if not isinstance(raw, bool):
        raise InvalidInput(f"options.{RAW_SCORES} is true or false.")
    return raw, replace(options, extra={k: v for k, v in options.extra.items() if k != RAW_SCORES})


def _texts(items: Sequence[Item]) -> list[str | EngineError]:
    """`only_text` of each, or what is wrong with it, said of its index."""
    texts: list[str | EngineError] = []
    for index, item in enumerate(items):
        try:
            texts.append(only_text(item))
        except InvalidInput as error:
            texts.append(error.at(index))
    return texts


def _held(item: Item) -> str:
    kinds = {
        "text": item.text is not None,
        "audio": item.audio is not None,
        "video": item.video is not None,
        "a document": item.document is not None,
    }
    images = {0: [], 1: ["one image"]}.get(len(item.images), [f"{len(item.images)} images"])
    return " and ".join([kind for kind, there in kinds.items() if there] + images) or "nothing"
