"""Values of free shape inside a body (options, metadata, schemas): bounded before they are built.

One byte of a body can become a hundred of empty lists. So such a value stays raw bytes until it is known
to be small and to hold few of them, and is then checked to be made of plain things only.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from engine.errors import InvalidInput
from web.wire import counted, msgpack
from web.wire.forms import Form

MAX_DEPTH = 32
ABSENT = Raw()
UNSENT: Any = msgspec.field(default_factory=lambda: ABSENT)
"""The default of a raw field: `ABSENT`, in a form that the type's JSON schema can be made of."""
_NOTHING = (b"", b"null", b"\xc0")
_LEAVES = frozenset([type(None), bool, int, float, str, bytes])
_TEXT = frozenset([str])


def size(raw: Raw) -> int:
    return 0 if raw is ABSENT else memoryview(raw).nbytes


def given(raw: Raw) -> bool:
    """Whether it was sent, and not as null."""
    return raw is not ABSENT and (size(raw) > 4 or bytes(raw) not in _NOTHING)


def value(raw: Raw, form: Form, where: str, limit_bytes: int) -> Any:
    """What `raw` holds, arrays as numpy arrays. `where` names it in complaints."""
    if size(raw) > limit_bytes:
        raise InvalidInput(f"{where} has {size(raw)} bytes; at most {limit_bytes} are taken.")
    within(containers(raw, form), where)
    try:
        found = msgspec.json.decode(raw) if form is Form.JSON else msgspec.msgpack.decode(raw)
        return _plain(found, MAX_DEPTH)
    except RecursionError:
        raise InvalidInput(f"{where} is nested deeper than {MAX_DEPTH} levels; make it flatter.") from None
    except ValueError as error:
        raise InvalidInput(f"{where} cannot be read: {error}.") from None


def mapping(raw: Raw, form: Form, where: str, limit_bytes: int) -> dict[str, Any]:
    """The map that `raw` holds; empty when it was not sent."""
    found = value(raw, form, where, limit_bytes) if given(raw) else {}
    if not isinstance(found, dict):
        raise InvalidInput(f"{where} must be a map of names to values, not {type(found).__name__}.")
    return found


def containers(raw: Raw, form: Form) -> int:
    """Lists and maps in it, as `counted` tells them."""
    return counted.containers(bytes(raw), form) if size(raw) > 1 else 0


def within(found: int, where: str) -> None:
    """Raises InvalidInput for more lists and maps than one request may hold."""
    if found > counted.MOST:
        raise InvalidInput(f"{where} holds more than {counted.MOST} lists and maps; send it flatter.")


def _plain(value: Any, levels: int) -> Any:
    """The value with its arrays as numpy arrays. Raises ValueError for all that is not plain data."""
    if levels < 0:
        raise RecursionError
    if isinstance(value, list):
        if not _LEAVES.issuperset(map(type, value)):
            value[:] = [each if type(each) in _LEAVES else _plain(each, levels - 1) for each in value]
    elif isinstance(value, dict):
        if b"nd" in value:
            return msgpack.array(value)
        if not _TEXT.issuperset(map(type, value)):
            raise msgpack.Malformed("a key is no text")
        for key, each in value.items():
            if type(each) not in _LEAVES:
                value[key] = _plain(each, levels - 1)
    elif type(value) not in _LEAVES:
        raise msgpack.Malformed(f"{type(value).__name__} is not plain data")
    return value
