"""How many lists and maps a body's value holds, told before any of them is built. Pure.

An empty list is one byte of msgpack, and seventy in memory.
"""

from __future__ import annotations

from web.wire.decoding import Body
from web.wire.forms import Form

MOST = 2**16
"""Lists and maps in the values of free shape of one request."""

MOST_VALUES = 2**17
"""Values of msgpack that are looked at one by one: enough to stop for."""
MOST_BYTES = 2**21
"""Of JSON in which brackets are told from those in texts; in more of it all count."""

_HEADS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes of the length that follows the head of binary data, extensions and texts."""
_EXTENDED = (0xC7, 0xC8, 0xC9)
"""Those that have one byte more, their type."""


def _step(head: int) -> int:
    """Bytes from a head to the next one, where no length has to be read."""
    sizes = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
    sizes |= {0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18, 0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}
    return head - 0xA0 + 1 if 0xA0 <= head < 0xC0 else sizes.get(head, 1)


_STEPS = [0 if head in _LENGTHS else _step(head) for head in range(256)]


def containers(data: Body, form: Form) -> int:
    """At least as many as there are, or more than `MOST`."""
    if form is Form.JSON:
        possible = data.count(b"[") + data.count(b"{")
        return possible if possible <= MOST or len(data) > MOST_BYTES else _outside_texts(data)
    possible = len(data) - len(data.translate(None, _HEADS))
    return possible if possible <= MOST else _walk(data)


def _outside_texts(data: Body) -> int:
    """Brackets of JSON that are in no text: code, say."""
    outside = b"".join(data.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    return outside.count(b"[") + outside.count(b"{")


def _walk(data: Body) -> int:
    found = at = values = 0
    while at < len(data) and found <= MOST:
        head = data[at]
        if step := _STEPS[head]:
            found += head in _HEADS
            at += step
        else:
            width = _LENGTHS[head]
            at += 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "big") + (head in _EXTENDED)
        values += 1
        if values > MOST_VALUES:
            return MOST + 1
    return found
