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
from web.wire.bodies import Asked
from web.wire.decoding import Body, decode
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai import inputs
from web.wire.pieces import Answer

FORMATS = ("float", "base64")
ROLES = ("query", "passage", "document")


class EmbeddingsBody(Struct):
    """`input_type` is not OpenAI's: models that embed queries in another way are told so by it."""

    model: str
    input: Raw
    encoding_format: str | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None
    input_type: str | None = None


@dataclass(frozen=True, slots=True)
class Embedding(Asked):
    model: str = ""
    encoding: str = "float"


def read(body: Body, form: Form, limits: Limits) -> Embedding:
    texts.only_json(form)
    asked = decode(body, form, EmbeddingsBody)
    encoding = options.one_of(asked.encoding_format or "float", FORMATS, "encoding_format")
    role = options.one_of(asked.input_type or "document", ROLES, "input_type")
    chosen = EncodeOptions(
        output_types=(OutputType.DENSE,),
        is_query=role == "query",
        dimensions=asked.dimensions,
    )
    return Embedding(
        inputs.items(asked.input, form, limits, "input"), chosen, model=asked.model, encoding=encoding
    )


def answer(asked: Embedding, response: Response) -> Answer:
    outputs = answers.outputs_of(Encoded, asked.items, response)
    tokens = response.usage.input_tokens
    after = {"model": response.model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    return Answer({"object": "list"}, "data", len(outputs), _entries(outputs, asked.encoding), after)


def _entries(outputs: Sequence[Encoded], encoding: str) -> Iterator[dict[str, Any]]:
    for index, output in enumerate(outputs):
        vector = np.ascontiguousarray(output.dense, "<f4")
        written: Any = vector if encoding == "float" else base64.b64encode(vector.tobytes()).decode()
        yield {"object": "embedding", "index": index, "embedding": written}
