"""Responses of the engine as the maps that clients read: names, order and dtypes as they expect them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from engine.catalog import ModelSpec
from engine.errors import EngineError, InferenceFailed
from engine.requests import (
    Encoded,
    Entity,
    Extracted,
    Generated,
    Item,
    Output,
    OutputType,
    Response,
    Scored,
    Timing,
    Usage,
)
from web import errors
from web.wire.pieces import Answer

T = TypeVar("T", bound=Output)
_PACKED_BITS = ("binary", "ubinary")


def encoded(spec: ModelSpec, items: Sequence[Item], dtype: str, response: Response) -> Answer:
    """Raises the error of the first item that has one: this answer has no place for it."""
    outputs = outputs_of(Encoded, items, response)
    entries = (_vectors(spec, item, dtype, output) for item, output in zip(items, outputs, strict=True))
    after = {"timing": timing(response.timing), **_usage(response.usage)}
    return Answer({"model": response.model}, "items", len(items), entries, after)


def scored(items: Sequence[Item], query_id: str | None, response: Response) -> Answer:
    """Best first, as `ranked`."""
    entries = (
        {"item_id": _id(items[index], index), "score": score, "rank": rank}
        for rank, (index, score) in enumerate(ranked(items, response))
    )
    before = {"model": response.model, "query_id": query_id}
    return Answer(before, "scores", len(items), entries, _usage(response.usage))


def ranked(items: Sequence[Item], response: Response) -> list[tuple[int, float]]:
    """Each item's index and score, best first; equal scores stay in the order in which they were sent."""
    outputs = outputs_of(Scored, items, response)
    scores = [float(output.score) for output in outputs]
    for index, score in enumerate(scores):
        if not math.isfinite(score):
            raise InferenceFailed("The model's score of this item is no number.").at(index)
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    return [(index, scores[index]) for index in order]


def extracted(items: Sequence[Item], response: Response) -> Answer:
    """An item that failed keeps its place, empty, with its error."""
    _check_count(items, response)
    entries = (
        {"id": _id(item, index), **_found(output)}
        for index, (item, output) in enumerate(zip(items, response.outputs, strict=True))
    )
    failed = any(not isinstance(output, Extracted) for output in response.outputs)
    after = _usage(response.usage) or ({"usage": {"input_tokens": 0}} if failed else {})
    return Answer({"model": response.model}, "items", len(items), entries, after)


def generated(response: Response) -> dict[str, Any]:
    text = generation(response)
    return {
        "model": response.model,
        "text": text.text,
        "finish_reason": text.finish_reason,
        "usage": generation_usage(response.usage),
    }


def generation(response: Response) -> Generated:
    """The one text of a generate response. Raises its error when it has one."""
    return outputs_of(Generated, [Item()], response)[0]


def generation_usage(usage: Usage) -> dict[str, int]:
    images = {"images": usage.images} if usage.images else {}
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        **images,
    }


def reading_usage(usage: Usage) -> dict[str, int]:
    """Of a call that writes nothing, in the words of other APIs; `truncated` is ours."""
    tokens = usage.input_tokens
    cut = {"truncated": usage.truncated} if usage.truncated else {}
    return {"prompt_tokens": tokens, "total_tokens": tokens, **cut}


def timing(spent: Timing) -> dict[str, float | None]:
    """In milliseconds. What comes after the model is part of its run here, so nobody measured it."""
    return {
        "total_ms": spent.total * 1000,
        "queue_ms": spent.queue * 1000,
        "tokenization_ms": spent.prepare * 1000,
        "inference_ms": spent.run * 1000,
        "postprocessing_ms": None,
    }


def _check_count(items: Sequence[Item], response: Response) -> None:
    if len(response.outputs) != len(items):
        raise InferenceFailed(f"The model gave {len(response.outputs)} results for {len(items)} items.")


def outputs_of(kind: type[T], items: Sequence[Item], response: Response) -> list[T]:
    """One output of `kind` an item, in order. Raises the error of the first item that has one."""
    _check_count(items, response)
    made: list[T] = []
    for index, output in enumerate(response.outputs):
        if isinstance(output, EngineError):
            raise output.at(index)
        if not isinstance(output, kind):
            raise InferenceFailed("The model failed on this item.").at(index) from (
                output if isinstance(output, Exception) else None
            )
        made.append(output)
    return made


def _vectors(spec: ModelSpec, item: Item, dtype: str, output: Encoded) -> dict[str, Any]:
    """`dims` is what the model has by itself, also when fewer numbers, or bits, were asked for."""
    entry: dict[str, Any] = {} if item.id is None else {"id": item.id}
    if (dense := output.dense) is not None:
        entry["dense"] = {
            "dims": spec.dims.get(OutputType.DENSE, dense.shape[-1]),
            "dtype": _dtype(dense.dtype.name, dtype),
            "values": dense,
        }
    if (sparse := output.sparse) is not None:
        entry["sparse"] = {
            "dims": sparse.dims,
            "dtype": sparse.values.dtype.name,
            "indices": sparse.indices,
            "values": sparse.values,
        }
    if (tokens := output.multivector) is not None:
        entry["multivector"] = {
            "token_dims": spec.dims.get(OutputType.MULTIVECTOR, tokens.shape[-1]),
            "num_tokens": tokens.shape[0],
            "dtype": _dtype(tokens.dtype.name, dtype),
            "values": tokens,
        }
    return entry


def _dtype(actual: str, asked: str) -> str:
    """Eight dimensions to a byte are called binary, whichever kind of byte."""
    return "binary" if asked in _PACKED_BITS else actual


def _found(output: Output | Exception) -> dict[str, Any]:
    good = output if isinstance(output, Extracted) else Extracted()
    entry: dict[str, Any] = {
        "entities": [_entity(entity) for entity in good.entities],
        "relations": [
            {"head": r.head, "tail": r.tail, "relation": r.relation, "score": float(r.score)}
            for r in good.relations
        ],
        "classifications": [{"label": c.label, "score": float(c.score)} for c in good.classifications],
        "objects": [
            {"label": o.label, "score": float(o.score), "bbox": [float(v) for v in o.bbox]}
            for o in good.objects
        ],
        "data": good.data,
    }
    if good is not output:
        failed = output if isinstance(output, EngineError) else InferenceFailed()
        entry["error"] = {"code": errors.code(failed), "message": failed.message}
    return entry


def _entity(entity: Entity) -> dict[str, Any]:
    return {
        "text": entity.text,
        "label": entity.label,
        "score": float(entity.score),
        "start": entity.start,
        "end": entity.end,
        "bbox": [float(v) for v in entity.bbox] if entity.bbox else None,
    }


def _id(item: Item, index: int) -> str:
    return f"item-{index}" if item.id is None else item.id


def _usage(usage: Usage) -> Mapping[str, Any]:
    """Nothing when nothing was counted."""
    counted = {
        "input_tokens": usage.input_tokens,
        "images": usage.images,
        "pages": usage.pages,
        "audio_ms": usage.audio_ms,
        "truncated": usage.truncated,
    }
    if not any(counted.values()):
        return {}
    said = {name: count for name, count in counted.items() if count or name == "input_tokens"}
    return {"usage": said}
