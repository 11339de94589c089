"""What is typed, piped or read from files, as the bodies of the four native calls."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from engine.requests import Task
from web.calling.failing import CallFailed

Body = dict[str, Any]

DOCUMENTS = frozenset({".pdf", ".docx", ".pptx", ".xlsx", ".html", ".htm"})
"""Files that are sent as they are to be read there; all else that is no image, sound or film is text."""
TEXTS = frozenset({".md", ".csv"})
"""Files that are documents too, for models that read no text."""


def item(path: Path, documents: Collection[str] = DOCUMENTS) -> Body:
    """A file as an item; those with one of these endings are documents. Raises CallFailed when it cannot be
    read, or is no text where it should be."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CallFailed(f"{path}: {error.strerror}") from None
    kind = (mimetypes.guess_type(path.name)[0] or "").partition("/")[0]
    media = {"data": base64.b64encode(data).decode(), "format": path.suffix.lower().removeprefix(".")}
    if kind == "image":
        return {"id": path.name, "images": [media]}
    if kind in ("audio", "video"):
        return {"id": path.name, kind: media}
    if path.suffix.lower() in documents:
        return {"id": path.name, "document": media}
    return {"id": path.name, "text": text(data, str(path))}


def text(data: bytes, where: str) -> str:
    """Raises CallFailed for bytes that are no UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CallFailed(f"{where} is no UTF-8 text: byte {error.start} of it is wrong.") from None


def of_items(task: Task, items: Sequence[Body], more: Mapping[str, Any]) -> Body:
    """One body of all items. `more` are its other fields, and win. Raises CallFailed for generate with more
    than one prompt."""
    if task is not Task.GENERATE:
        return {"items": list(items), **more}
    prompts = [each.get("text") for each in items]
    if len(prompts) != 1 or prompts[0] is None:
        raise CallFailed("generate takes one prompt, as text; several go by --jsonl, one a line.")
    return {"prompt": prompts[0], **more}


def of_line(task: Task, line: bytes, more: Mapping[str, Any]) -> Body:
    """A line is a text, an item, or a whole body, which has `items` or `prompt`. `more` stands in where the
    line says nothing. Raises CallFailed."""
    try:
        found = orjson.loads(line)
    except ValueError as error:
        raise CallFailed(f"the line is no JSON: {error}", "INVALID_INPUT") from None
    if isinstance(found, str):
        return of_items(task, [{"text": found}], more)
    if not isinstance(found, dict):
        raise CallFailed(f"a line is a text or a map, not {type(found).__name__}", "INVALID_INPUT")
    if "items" in found or "prompt" in found:
        return {**more, **found}
    return of_items(task, [found], more)
