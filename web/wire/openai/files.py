"""Files as OpenAI's clients read them, and one page of a list of whatever has an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from engine.batches.kept import File
from engine.errors import InvalidInput

PURPOSE = "batch"
_AFTER = "expires_after"
_FIELDS = {f"{_AFTER}[anchor]", f"{_AFTER}[seconds]"}
_FORM = (
    f"{_AFTER} is the fields {_AFTER}[anchor] and {_AFTER}[seconds], or one field {_AFTER} with JSON such as "
    '{"anchor": "created_at", "seconds": 3600}'
)
LEAST_KEPT = 3600
"""Seconds that a file is kept at least, as at OpenAI."""


class ExpiresAfter(Struct):
    """When a file is to go: so many seconds after it was made."""

    anchor: str
    seconds: int


class FileObject(Struct):
    """Times are seconds since the epoch."""

    id: str
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"


class FileList(Struct):
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class FileDeleted(Struct):
    id: str
    deleted: bool
    object: Literal["file"] = "file"


class Named(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Named)


def told(file: File) -> dict[str, Any]:
    """As `FileObject`."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at),
        "expires_at": int(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
    }


def purpose(said: str | None) -> str:
    """Raises InvalidInput for what files are not kept for here."""
    if said != PURPOSE:
        raise InvalidInput(f"purpose is {PURPOSE!r} here, not {(said or '')[:100]!r}.", param="purpose")
    return said


def lasting(said: ExpiresAfter | None, days: int, where: str = "expires_after") -> float | None:
    """Seconds that a file is kept; None where nothing is said. `days`: no file is kept longer.

    Raises InvalidInput.
    """
    if said is None:
        return None
    if said.anchor != "created_at":
        raise InvalidInput(f"{where}.anchor is 'created_at'.", param=where)
    if not LEAST_KEPT <= said.seconds <= days * 86400:
        most = f"{days * 86400} (file_days, {days} days)"
        raise InvalidInput(f"{where}.seconds is from {LEAST_KEPT} to {most}.", param=where)
    return float(said.seconds)


def of_form(said: Mapping[str, str]) -> ExpiresAfter | None:
    """As a form has it: `expires_after[anchor]` and `expires_after[seconds]`, or JSON in one field.

    Raises InvalidInput for whatever else has that name.
    """
    about = {name for name in said if name.startswith(_AFTER)}
    if about == {_AFTER}:
        return _of_json(said[_AFTER])
    if about - _FIELDS:
        odd = min(about - _FIELDS)
        raise InvalidInput(f"{_FORM}, not {odd[:100]!r} as sent.", param=_AFTER)
    anchor, seconds = (said.get(f"expires_after[{name}]") for name in ("anchor", "seconds"))
    if anchor is None and seconds is None:
        return None
    if seconds is None or not (seconds.isascii() and seconds.isdigit() and len(seconds) < 12):
        raise InvalidInput("expires_after[seconds] is a whole number.", param="expires_after")
    return ExpiresAfter(anchor or "", int(seconds))


def _of_json(text: str) -> ExpiresAfter:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"), type=ExpiresAfter)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{_FORM}, not {text[:100]!r}: {error}.", param=_AFTER) from None


def page(found: Sequence[T], query: Mapping[str, str], usual: int, most: int) -> tuple[list[T], bool]:
    """One page of what is `found`, oldest first, and whether there is more.

    Raises InvalidInput for an `after`, a `limit` or an `order` that is none.
    """
    said = query.get("limit", str(usual))
    if not (said.isascii() and said.isdigit() and len(said) < 10 and 1 <= int(said) <= most):
        raise InvalidInput(f"limit is a number from 1 to {most}, not {said[:100]!r}.", param="limit")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidInput(f"order is asc or desc, not {order[:100]!r}.", param="order")
    rows, start = list(found) if order == "asc" else list(found)[::-1], 0
    if (after := query.get("after")) is not None:
        start = next((at for at, row in enumerate(rows, 1) if row.id == after), -1)
        if start < 0:
            raise InvalidInput(f"after names {after[:100]!r}, which is not in this list.", param="after")
    end = start + int(said)
    return rows[start:end], end < len(rows)


def listed(rows: Sequence[Mapping[str, Any]], more: bool) -> dict[str, Any]:
    ends = (rows[0]["id"], rows[-1]["id"]) if rows else (None, None)
    return {"object": "list", "data": list(rows), "first_id": ends[0], "last_id": ends[1], "has_more": more}
