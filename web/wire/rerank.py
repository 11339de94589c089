"""`/v1/rerank` and `/v2/rerank` as clients of Cohere and Jina write and read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from engine.errors import InvalidInput
from engine.requests import Response
from web.wire import answers, free, options, texts
from web.wire.bodies import MAX_OPTIONS_BYTES, Asked, adapter_elsewhere
from web.wire.decoding import Body, decode
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.pieces import Answer

MAX_FIELDS = 32
Documents = Annotated[list[str | dict[str, Raw]], Meta(max_length=2**18)]


class RelevantSpans(Struct):
    """Spans are not offered: any mode but `disabled` is refused."""

    mode: str = "enabled"


class RerankBody(Struct):
    """The last four change nothing here: a document is cut to what the model takes."""

    query: str
    documents: Documents
    model: str | None = None
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool | None = None
    rank_fields: Annotated[list[str], Meta(max_length=MAX_FIELDS)] | None = None
    options: Raw = free.UNSENT
    relevant_spans: RelevantSpans | None = None
    max_chunks_per_doc: Annotated[int, Meta(ge=1)] | None = None
    max_tokens_per_doc: Annotated[int, Meta(ge=1)] | None = None
    priority: Annotated[int, Meta(ge=0)] | None = None
    truncation: bool | None = None


@dataclass(frozen=True, slots=True)
class Reranking(Asked):
    """The passages are the items; what else the body says of the answer."""

    model: str = ""
    top_n: int | None = None
    return_documents: bool = False


class Result(Struct):
    """One document's place in the answer, as it is documented; `document` when it was asked for."""

    index: int
    relevance_score: float
    document: dict[str, str] | None = None


class Reranked(Struct):
    """`results` are best first. `meta` is what Cohere's clients read, `usage` what Jina's do."""

    id: str
    model: str
    object: str
    results: list[Result]
    meta: dict[str, Any]
    usage: dict[str, int]


def read(body: Body, form: Form, limits: Limits) -> Reranking:
    """Scores lie between 0 and 1, as these clients expect, unless `options.activation` is `raw`."""
    texts.only_json(form)
    asked = decode(body, form, RerankBody)
    adapter_elsewhere(body, form, "options.lora_id")
    if not asked.model:
        raise InvalidInput("model is missing; name one of GET /v1/models that can score.")
    if asked.relevant_spans is not None and asked.relevant_spans.mode != "disabled":
        raise InvalidInput("relevant_spans are not offered here; leave them out.")
    if not asked.documents:
        raise InvalidInput("documents is empty; send at least one.")
    if len(asked.documents) > limits.items:
        raise InvalidInput(
            f"documents has {len(asked.documents)} entries; at most {limits.items} are taken in a request "
            "(max_items)."
        )
    raw = free.mapping(asked.options, form, "options", MAX_OPTIONS_BYTES)
    given = options.known(
        {"activation": "sigmoid", "overflow_policy": "truncate_text", **raw}, options.ScoreKnown
    )
    fields = asked.rank_fields or ["text"]
    found = [_text(document, fields, index) for index, document in enumerate(asked.documents)]
    return Reranking(
        items=texts.items(found, limits, "documents"),
        options=options.score(given, texts.item(asked.query, limits, "query"), None),
        profile=given.profile,
        service_class=options.service_class(given.service_class, "options.class"),
        model=asked.model,
        top_n=asked.top_n,
        return_documents=bool(asked.return_documents),
    )


def answer(asked: Reranking, response: Response, request_id: str, version: str) -> Answer:
    """As `Reranked`. Raises the error of the first document that has one."""
    ranked = answers.ranked(asked.items, response)[: asked.top_n]
    entries = (_result(asked, index, score) for index, score in ranked)
    used = response.usage
    cut = f"Of {used.truncated} documents only the beginning was read: they are longer than the model takes."
    after = {
        "meta": {
            "api_version": {"version": version},
            "tokens": {"input_tokens": used.input_tokens, "output_tokens": 0},
            **({"warnings": [cut]} if used.truncated else {}),
        },
        "usage": answers.reading_usage(used),
    }
    before = {"id": request_id, "model": response.model, "object": "list"}
    return Answer(before, "results", len(ranked), entries, after)


def _result(asked: Reranking, index: int, score: float) -> dict[str, Any]:
    result: dict[str, Any] = {"index": index, "relevance_score": score}
    if asked.return_documents:
        result["document"] = {"text": asked.items[index].text}
    return result


def _text(document: str | dict[str, Raw], fields: Sequence[str], index: int) -> str:
    """What is scored of a document: itself, or the fields that are to be ranked, a line each."""
    if isinstance(document, str):
        return document
    given = [
        _field(document[name], f"documents[{index}].{name[:100]}") for name in fields if name in document
    ]
    found = [text for text in given if text is not None]
    if not found:
        named = " or ".join(name[:100] for name in fields)
        raise InvalidInput(f"documents[{index}] is a map without {named}.", item=index)
    return "\n".join(found)


def _field(raw: Raw, where: str) -> str | None:
    try:
        found = msgspec.json.decode(raw, type=str | int | float | bool | None)
    except ValueError:
        raise InvalidInput(f"{where} is no text.") from None
    return found if found is None or isinstance(found, str) else bytes(raw).decode().strip()
