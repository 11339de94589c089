"""What a client asks and what it gets: plain values, free of HTTP and of any model library.

Structs where each request makes one, since those cost a tenth of what a frozen dataclass does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chosen import Chosen


class Task(StrEnum):
    ENCODE = "encode"
    SCORE = "score"
    EXTRACT = "extract"
    GENERATE = "generate"


class ServiceClass(IntEnum):
    """Who goes first. Smaller is more urgent."""

    INTERACTIVE = 0
    STANDARD = 1
    BACKGROUND = 2


class OutputType(StrEnum):
    DENSE = "dense"
    SPARSE = "sparse"
    MULTIVECTOR = "multivector"


class Overflow(StrEnum):
    """What happens to an input longer than the model takes."""

    DEFAULT = "default"  # the catalogue entry decides
    TRUNCATE = "truncate_text"
    ERROR = "error"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a recording, a film or a document, as the client sent it."""

    data: bytes
    format: str | None = None
    sample_rate: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One input. Which fields may be set depends on the model."""

    id: str | None = None
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    """Instead of a text: ids of the model's own tokenizer."""
    images: tuple[Media, ...] = ()
    audio: Media | None = None
    video: Media | None = None
    document: Media | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    output_types: tuple[OutputType, ...] = ()  # empty: the model's first
    is_query: bool = False
    instruction: str | None = None
    output_dtype: str = "float32"  # float32 float16 int8 uint8 binary ubinary
    normalize: bool | None = None  # None: as the catalogue entry says
    pooling: str | None = None
    dimensions: int | None = None
    overflow: Overflow = Overflow.DEFAULT
    lora: str | None = None  # an adapter of the entry; None: the model as it is


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    query: Item = field(default_factory=Item)
    instruction: str | None = None
    activation: str | None = None  # raw | sigmoid; None: as the catalogue entry says
    overflow: Overflow = Overflow.DEFAULT
    lora: str | None = None


@dataclass(frozen=True, slots=True)
class ExtractOptions:
    labels: tuple[str, ...] = ()
    threshold: float | None = None
    output_schema: Mapping[str, Any] | None = None
    instruction: str | None = None
    overflow: Overflow = Overflow.DEFAULT
    extra: Mapping[str, Any] = field(default_factory=dict)  # what only one family knows
    lora: str | None = None


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must be a word of: a JSON schema, a regular expression or a Lark grammar."""

    kind: Literal["json_schema", "regex", "lark"]
    text: str


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    max_new_tokens: int = 256
    temperature: float = 0.0  # 0: greedy
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    raw: bool = False  # the prompt goes to the model as it is, without the chat template
    messages: tuple[Mapping[str, Any], ...] = ()  # instead of a prompt: a conversation
    tools: tuple[Mapping[str, Any], ...] = ()  # functions that a conversation's answer may call
    grammar: Grammar | None = None
    top_logprobs: int | None = None  # None: no chances; 0: of the chosen tokens; more: of the likeliest too
    lora: str | None = None

    @property
    def held_bytes(self) -> int:
        """Of the conversation and its tools, text at four a character as Python may hold it."""
        return 4 * sum(_characters(each) for each in (*self.messages, *self.tools))


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_characters(each) for each in value.values())
    return sum(map(_characters, value)) if isinstance(value, list | tuple) else 0


Options = EncodeOptions | ScoreOptions | ExtractOptions | GenerateOptions


@dataclass(frozen=True, slots=True)
class Request:
    """One call. For score the items are the passages; for generate there is one item, the prompt."""

    id: str
    task: Task
    model: str
    items: tuple[Item, ...]
    options: Options
    service_class: ServiceClass | None = None  # None: the model's default
    deadline: float = math.inf  # absolute, on the event loop's clock
    session: str | None = None  # already a keyed hash
    profile: str | None = None
    principal: str = ""  # whose it is: within a model, who asks shares fairly with the others


class Usage(msgspec.Struct, frozen=True):
    """What an input took, in real units."""

    input_tokens: int = 0
    output_tokens: int = 0
    images: int = 0
    pages: int = 0
    truncated: int = 0  # inputs that were cut to the model's length
    audio_ms: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.images + other.images,
            self.pages + other.pages,
            self.truncated + other.truncated,
            self.audio_ms + other.audio_ms,
        )


@dataclass(frozen=True, slots=True)
class Sparse:
    """A sparse vector of `dims`: int32 indices, ascending, and float32 values, both (n,)."""

    dims: int
    indices: NDArray[np.int32]
    values: NDArray[np.float32]


class Encoded(msgspec.Struct, frozen=True):
    """dense (dims,), sparse, multivector (tokens, token_dims); in the dtype that was asked."""

    dense: NDArray[Any] | None = None
    sparse: Sparse | None = None
    multivector: NDArray[Any] | None = None


class Scored(msgspec.Struct, frozen=True):
    score: float


@dataclass(frozen=True, slots=True)
class Entity:
    """`start` and `end` count code points of the item's own text, end exclusive; or a box in pixels."""

    text: str
    label: str
    score: float
    start: int | None = None
    end: int | None = None
    bbox: tuple[float, float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    head: str
    tail: str
    relation: str
    score: float


@dataclass(frozen=True, slots=True)
class Classification:
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class Detection:
    """`bbox` is x1, y1, x2, y2 in pixels of the image as it is meant to be seen (EXIF applied)."""

    label: str
    score: float
    bbox: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Extracted:
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    classifications: tuple[Classification, ...] = ()
    objects: tuple[Detection, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Generated:
    text: str
    finish_reason: str  # stop | length
    token_ids: tuple[int, ...] = ()
    chosen: tuple[Chosen, ...] = ()
    """The tokens that the text is made of, where their chances were asked for."""


Output = Encoded | Scored | Extracted | Generated


class Timing(msgspec.Struct, frozen=True):
    """Seconds a request spent in each stage; together they make its life inside the engine."""

    prepare: float = 0.0
    queue: float = 0.0
    load: float = 0.0
    run: float = 0.0
    total: float = 0.0


class Response(msgspec.Struct, frozen=True):
    """One output per item, in order; on extract an item's place may hold what went wrong with it."""

    model: str
    outputs: tuple[Output | Exception, ...]
    usage: Usage
    timing: Timing
    cold: bool = False
    device: str = ""
    degraded_from: str | None = None  # the model that was asked, when another answered for want of room
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a text as it is written. The last has `done` and the whole answer."""

    text: str
    tokens: int
    done: Response | None = None
    chosen: tuple[Chosen, ...] = ()
