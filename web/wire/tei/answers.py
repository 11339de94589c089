"""Answers as TEI's clients read them: bare lists, which are written in slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.catalog import ModelSpec
from engine.errors import InvalidInput
from engine.estimates import Tokens
from engine.requests import Encoded, Extracted, Item, Response, Scored, Task
from web.wire import answers, pieces

# A model with one output calls it so, as transformers does where a configuration names none.
ONLY_LABEL = "LABEL_0"


def dense(items: Sequence[Item], response: Response) -> Iterator[Any]:
    """A vector an input."""
    return (output.dense for output in answers.outputs_of(Encoded, items, response))


def tokens(items: Sequence[Item], response: Response) -> Iterator[Any]:
    """A vector a token, an input."""
    return (output.multivector for output in answers.outputs_of(Encoded, items, response))


def sparse(items: Sequence[Item], response: Response) -> Iterator[list[dict[str, Any]]]:
    """`{index, value}` for each number that is not 0."""
    for output in answers.outputs_of(Encoded, items, response):
        assert output.sparse is not None
        pairs = zip(output.sparse.indices.tolist(), output.sparse.values.tolist(), strict=True)
        yield [{"index": index, "value": value} for index, value in pairs]


def ranks(items: Sequence[Item], response: Response, *, with_text: bool) -> Iterator[dict[str, Any]]:
    """Best first, with the index in the request."""
    for index, score in answers.ranked(items, response):
        text = {"text": items[index].text} if with_text else {}
        yield {"index": index, **text, "score": score}


def classes(items: Sequence[Item], response: Response) -> list[list[dict[str, Any]]]:
    """Every class of each input, the likeliest first. Raises InvalidInput for a model that has none."""
    found = answers.outputs_of(Extracted, items, response)
    if not any(output.classifications for output in found):
        raise InvalidInput(f"{response.model} knows no classes; ask it by POST /v1/extract/{{model}}.")
    return [[{"score": float(c.score), "label": c.label} for c in output.classifications] for output in found]


def scores(items: Sequence[Item], response: Response) -> list[list[dict[str, Any]]]:
    """The one number of each pair, as a class."""
    found = answers.outputs_of(Scored, items, response)
    return [[{"score": float(output.score), "label": ONLY_LABEL}] for output in found]


def tokenized(items: Sequence[Item], cut: Sequence[Tokens]) -> Iterator[bytes]:
    """A list of each input's tokens, in slices; those that stand for a part of a text say which, in code
    points."""
    before = b"["
    for item, tokens in zip(items, cut, strict=True):
        text = item.text or ""
        found = (
            _token(text, number, bool(mark), span, tokens)
            for number, mark, span in zip(tokens.ids, tokens.special, tokens.spans, strict=True)
        )
        yield from pieces.listed(found, before)
        before = b","
    yield b"]"


def _token(text: str, number: int, special: bool, span: tuple[int, int], tokens: Tokens) -> dict[str, Any]:
    start, stop = span
    if special:
        return {"id": number, "text": tokens.names[number], "special": True, "start": None, "stop": None}
    return {"id": number, "text": text[start:stop], "special": False, "start": start, "stop": stop}


def info(spec: ModelSpec, most: int, concurrent: int, version: str) -> dict[str, Any]:
    """`most` inputs are taken in a request. What a batch holds is decided while serving: there is no
    number for it."""
    return {
        "model_id": spec.id,
        "model_sha": next((source.revision for source in spec.sources if source.revision), None),
        "model_dtype": spec.dtype,
        "model_type": _kind(spec),
        "max_concurrent_requests": concurrent,
        "max_input_length": spec.max_tokens or 0,
        "max_batch_tokens": spec.limits.max_batch_cost or 0,
        "max_batch_requests": spec.limits.max_batch_jobs,
        "max_client_batch_size": most,
        "auto_truncate": spec.overflow == "truncate_text",
        "tokenization_workers": 0,
        "version": version,
        "sha": None,
        "docker_label": None,
    }


def _kind(spec: ModelSpec) -> dict[str, Any]:
    if Task.ENCODE in spec.tasks:
        return {"embedding": {"pooling": spec.pooling or "mean"}}
    if Task.SCORE in spec.tasks:
        return {"reranker": {"id2label": {"0": ONLY_LABEL}, "label2id": {ONLY_LABEL: 0}}}
    return {"classifier": {"id2label": {}, "label2id": {}}}
