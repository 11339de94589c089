"""What the native routes answer, as types: `answers.py`, `events.py` and `status.py` write them by hand, in
slices and in a fixed order. The reference (`web/openapi`) is made of these, and tests hold the two together.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType


class Exact(Struct, forbid_unknown_fields=True):
    pass


class Dense(Exact):
    """`dims` is what the model has by itself. `binary` packs eight dimensions into a byte."""

    dims: int
    dtype: str
    values: list[float]


class SparseVector(Exact):
    """Indices ascend."""

    dims: int
    dtype: str
    indices: list[int]
    values: list[float]


class Multivector(Exact):
    """A vector a token."""

    token_dims: int
    num_tokens: int
    dtype: str
    values: list[list[float]]


class EncodedItem(Exact):
    """`id` when one was sent; the kinds of vector that were asked for."""

    id: str | UnsetType = UNSET
    dense: Dense | UnsetType = UNSET
    sparse: SparseVector | UnsetType = UNSET
    multivector: Multivector | UnsetType = UNSET


class Times(Exact):
    """Milliseconds of each stage."""

    total_ms: float
    queue_ms: float
    tokenization_ms: float
    inference_ms: float
    postprocessing_ms: float | None


class Used(Exact):
    """Real units; absent where nothing was counted. Of `truncated` inputs only the beginning was read."""

    input_tokens: int
    images: int | UnsetType = UNSET
    pages: int | UnsetType = UNSET
    truncated: int | UnsetType = UNSET


class EncodeAnswer(Exact):
    """One entry an item, in order."""

    model: str
    items: list[EncodedItem]
    timing: Times
    usage: Used | UnsetType = UNSET


class Score(Exact):
    """`item_id` is `item-{index}` where no id was sent; ranks count from 0."""

    item_id: str
    score: float
    rank: int


class ScoreAnswer(Exact):
    """Best first."""

    model: str
    query_id: str | None
    scores: list[Score]
    usage: Used | UnsetType = UNSET


class FoundEntity(Exact):
    """`start` and `end` count code points of the item's text; or a box in pixels."""

    text: str
    label: str
    score: float
    start: int | None
    end: int | None
    bbox: list[float] | None


class FoundRelation(Exact):
    head: str
    tail: str
    relation: str
    score: float


class FoundClass(Exact):
    label: str
    score: float


class FoundObject(Exact):
    """`bbox` is x1, y1, x2, y2 in pixels."""

    label: str
    score: float
    bbox: list[float]


class ItemError(Exact):
    code: str
    message: str


class ExtractedItem(Exact):
    """An item that was wrong has `error`, and nothing in its lists."""

    id: str
    entities: list[FoundEntity]
    relations: list[FoundRelation]
    classifications: list[FoundClass]
    objects: list[FoundObject]
    data: dict[str, Any]
    error: ItemError | UnsetType = UNSET


class ExtractAnswer(Exact):
    """One entry an item, in order."""

    model: str
    items: list[ExtractedItem]
    usage: Used | UnsetType = UNSET


class Written(Exact):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    images: int | UnsetType = UNSET


class GenerateAnswer(Exact):
    """With `stream` it is events instead: `text_delta` in each, the rest in the last, then `[DONE]`."""

    model: str
    text: str
    finish_reason: str
    usage: Written


class Detail(Struct):
    """`item` is the index of the item that was wrong. Some codes have further fields."""

    code: str
    message: str
    request_id: str
    item: int | UnsetType = UNSET


class ErrorAnswer(Exact):
    """Every error of the native routes."""

    detail: Detail


class CohereError(Exact):
    """Every error of the rerank routes."""

    id: str
    message: str


class TeiError(Exact):
    """Every error of TEI's routes."""

    error: str
    error_type: str


class OpenAIDetail(Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Exact):
    """Every error of OpenAI's routes."""

    error: OpenAIDetail


class BothErrors(Exact):
    """Every error of the routes of models, for the clients of either API."""

    detail: Detail
    error: OpenAIDetail


class ModelEntry(Struct):
    """One model and its state; there are further fields. `weights` are `here`, `fetched when needed`, or
    `not here`: then a call is refused with 424. Lists tell it."""

    name: str
    loaded: bool
    state: str
    adapters: list[str]
    tasks: list[str]
    inputs: list[str]
    outputs: list[str]
    dims: dict[str, int]
    max_sequence_length: int | None
    aliases: list[str]
    description: str
    licence: str
    weights: str | UnsetType | None = UNSET


class ModelList(Struct):
    models: list[ModelEntry]


class Rank(Exact):
    """Best first; `text` when it was asked for."""

    index: int
    score: float
    text: str | UnsetType = UNSET


class SparseValue(Exact):
    index: int
    value: float


class Prediction(Exact):
    score: float
    label: str


class SimpleToken(Exact):
    """`start` and `stop` count code points; null for special tokens."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Info(Struct):
    """A model as TEI's clients know one."""

    model_id: str
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_client_batch_size: int
    auto_truncate: bool
    version: str
