"""The engine's requests as bodies of the native wire. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, assert_never

from engine.requests import (
    EncodeOptions,
    ExtractOptions,
    GenerateOptions,
    Item,
    Media,
    Options,
    Request,
    ScoreOptions,
)

Body = dict[str, Any]


def of(request: Request) -> Body:
    """As JSON takes it; its class, session and deadline go by headers."""
    return _with_profile(_of(request.options, request), request.profile)


def _of(options: Options, request: Request) -> Body:
    items = [item(each) for each in request.items]
    match options:
        case EncodeOptions():
            chosen: Body = {
                "is_query": options.is_query or None,
                "normalize": options.normalize,
                "pooling": options.pooling,
                "dimensions": options.dimensions,
                "overflow_policy": options.overflow.value,
                "lora_id": options.lora,
            }
            params: Body = {
                "output_types": [kind.value for kind in options.output_types] or None,
                "output_dtype": options.output_dtype,
                "instruction": options.instruction,
                "options": _said(chosen),
            }
            return {"items": items, "params": _said(params)}
        case ScoreOptions():
            chosen = {"activation": options.activation, "overflow_policy": options.overflow.value}
            chosen["lora_id"] = options.lora
            said = {"query": item(options.query), "instruction": options.instruction}
            return {"items": items, **_said(said), "options": _said(chosen)}
        case ExtractOptions():
            chosen = {
                **options.extra,
                "threshold": options.threshold,
                "overflow_policy": options.overflow.value,
                "lora_id": options.lora,
            }
            params = {
                "labels": list(options.labels) or None,
                "output_schema": options.output_schema,
                "instruction": options.instruction,
                "options": _said(chosen),
            }
            return {"items": items, "params": _said(params)}
        case GenerateOptions():
            return _generate(options, request)
        case _:
            assert_never(options)


def _generate(options: GenerateOptions, request: Request) -> Body:
    """A conversation that came by another route has no native body: its texts are the prompt."""
    (prompt,) = request.items
    text = prompt.text or "\n".join(text for message in options.messages for text in _texts(message))
    chosen = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "stop": list(options.stop) or None,
        "seed": options.seed,
        "frequency_penalty": options.frequency_penalty or None,
        "presence_penalty": options.presence_penalty or None,
        "logit_bias": {str(token): bias for token, bias in options.logit_bias.items()} or None,
        "images": [_media(image) for image in prompt.images] or None,
        "options": {"raw": True} if options.raw else None,
        "lora_adapter": options.lora,
        "stream": True,
    }
    return {"prompt": text, "max_new_tokens": options.max_new_tokens, **_said(chosen)}


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content") or ""
    return [content] if isinstance(content, str) else [part["text"] for part in content if "text" in part]


def item(found: Item) -> Body:
    made: Body = {
        "id": found.id,
        "text": found.text,
        "images": [_media(image) for image in found.images] or None,
        "audio": _media(found.audio) if found.audio else None,
        "video": _media(found.video) if found.video else None,
        "document": _media(found.document) if found.document else None,
        "metadata": dict(found.metadata) or None,
    }
    return _said(made)


def _media(found: Media) -> Body:
    told = _said({name: value for name, value in asdict(found).items() if name != "data"})
    return {"data": base64.b64encode(found.data).decode(), **told}


def _said(found: Body) -> Body:
    return {name: value for name, value in found.items() if value is not None}


def _with_profile(body: Body, profile: str | None) -> Body:
    if profile is None:
        return body
    place = body if "prompt" in body or "query" in body else body["params"]
    place.setdefault("options", {})["profile"] = profile
    return body
