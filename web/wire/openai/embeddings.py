"""`/v1/embeddings`: texts or token ids to vectors."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Raw, Struct

from engine.requests import Encoded, EncodeOptions, OutputType, Response
from web.wire import answers, options, texts
from web.wire.bodies import Asked, adapter_elsewhere
from web.wire.decoding import Body, decode
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai import inputs
from web.wire.pieces import Answer

FORMATS = ("float", "base64")
ROLES = ("query", "passage", "document")
QUERIES = "retrieval.query"
"""Jina's task of a query."""


class EmbeddingsBody(Struct):
    """`input_type` and `task` are not OpenAI's: models that embed queries in another way are told so by them.
    `task` is Jina's (`retrieval.query`, `text-matching`, ...). `lora_adapter` is an adapter of the model."""

    model: str
    input: Raw
    encoding_format: str | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None
    input_type: str | None = None
    task: str | None = None
    lora_adapter: Annotated[str, Meta(min_length=1)] | None = None


@dataclass(frozen=True, slots=True)
class Embedding(Asked):
    model: str = ""
    encoding: str = "float"


def read(body: Body, form: Form, limits: Limits) -> Embedding:
    texts.only_json(form)
    asked = decode(body, form, EmbeddingsBody)
    adapter_elsewhere(body, form, "lora_adapter")
    encoding = options.one_of(asked.encoding_format or "float", FORMATS, "encoding_format")
    usual = "query" if asked.task == QUERIES else "document"
    role = options.one_of(asked.input_type or usual, ROLES, "input_type")
    chosen = EncodeOptions(
        output_types=(OutputType.DENSE,),
        is_query=role == "query",
        dimensions=asked.dimensions,
        lora=asked.lora_adapter,
    )
    return Embedding(
        inputs.items(asked.input, form, limits, "input"),
        chosen,
        lora=asked.task,
        model=asked.model,
        encoding=encoding,
    )


def answer(asked: Embedding, response: Response) -> Answer:
    outputs = answers.outputs_of(Encoded, asked.items, response)
    after = {"model": response.model, "usage": answers.reading_usage(response.usage)}
    return Answer({"object": "list"}, "data", len(outputs), _entries(outputs, asked.encoding), after)


def _entries(outputs: Sequence[Encoded], encoding: str) -> Iterator[dict[str, Any]]:
    for index, output in enumerate(outputs):
        vector = np.ascontiguousarray(output.dense, "<f4")
        written: Any = vector if encoding == "float" else base64.b64encode(vector.tobytes()).decode()
        yield {"object": "embedding", "index": index, "embedding": written}
