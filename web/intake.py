"""Bodies come in here: bounded while they are read, and decoded where they hold nobody up."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import anyio
from aiohttp import hdrs, web
from anyio import CapacityLimiter, to_process

from engine.errors import BodyTooLarge, InvalidInput
from engine.requests import Item
from web.arriving import arriving
from web.wire import counted, forms
from web.wire.bodies import Asked
from web.wire.decoding import Body
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.pieces import SLICE_BYTES

LARGE_BYTES = 8 * 2**20
"""A JSON body over this is parsed in a child: parsing holds the interpreter for all its length."""
DENSE = 50_000
"""So is a body of either form with so many lists and maps, however short: they take a hundred times their
bytes."""

Reader = Callable[[Body, Form, Limits], Asked]

_ENCODINGS = frozenset({"", "identity", "gzip", "deflate", "br", "zstd"})
"""What the HTTP library undoes, or refuses where this machine cannot. Any other it passes on as it came."""


def check_encoding(request: web.Request) -> None:
    """Raises InvalidInput for a body in an encoding that nobody undoes: it is not what it seems."""
    said = request.headers.get(hdrs.CONTENT_ENCODING, "").strip().lower()
    if said not in _ENCODINGS:
        raise InvalidInput(f"Content-Encoding is gzip, deflate, br or zstd, or left out; not {said[:100]!r}.")


class Intake:
    """Reads and decodes bodies. Few large ones at a time, so that what is held stays bounded."""

    def __init__(self, max_body_bytes: int, limits: Limits) -> None:
        self._max_body_bytes = max_body_bytes
        self._limits = limits
        self._large = CapacityLimiter(16)
        self._children = CapacityLimiter(1)

    async def asked(self, request: web.Request, reader: Reader) -> Asked:
        """What the body asks for. Raises BodyTooLarge, DeadlineExceeded, or the reader's complaint."""
        form = forms.of_request(request.headers.get("Content-Type"))
        length = request.content_length
        self._check(length or 0)
        if length is not None and length <= LARGE_BYTES:
            return await self._decoded(await self._body(request), form, reader)
        async with self._large:
            return await self._decoded(await self._body(request), form, reader)

    async def decoded(self, body: Body, reader: Reader) -> Asked:
        """What a JSON body that is here already asks for."""
        self._check(len(body))
        return await self._decoded(body, Form.JSON, reader)

    async def body(self, request: web.Request) -> Body:
        """The whole body, for routes that decode it themselves."""
        self._check(request.content_length or 0)
        return await self._body(request)

    async def _body(self, request: web.Request) -> Body:
        """Counts what arrives, decompressed: no length that was declared is believed."""
        check_encoding(request)
        body = bytearray()
        async for chunk in arriving(request, "The body"):
            self._check(len(body) + len(chunk))
            body += chunk
        return body

    def _check(self, size: int) -> None:
        if size > self._max_body_bytes:
            raise BodyTooLarge(
                f"The body has {size} bytes or more; at most {self._max_body_bytes} are taken "
                "(max_body_bytes). Send fewer items in a request."
            )

    async def _decoded(self, body: Body, form: Form, reader: Reader) -> Asked:
        small = form is Form.MSGPACK or len(body) <= LARGE_BYTES
        if small and counted.containers(body, form) <= DENSE:
            return reader(body, form, self._limits)
        asked, runs = await to_process.run_sync(
            _in_runs, reader, body, form, self._limits, cancellable=True, limiter=self._children
        )
        items: list[Item] = []
        for run in runs:
            await anyio.lowlevel.checkpoint()  # others may run between two
            items += pickle.loads(run)
        return replace(asked, items=tuple(items))


def _in_runs(reader: Reader, body: Body, form: Form, limits: Limits) -> tuple[Asked, list[bytes]]:
    """In the child: the items apart from the rest, a few at a time, so that none takes long to take in."""
    asked = reader(body, form, limits)
    step = max(1, len(asked.items) * SLICE_BYTES // len(body))
    starts = range(0, len(asked.items), step)
    runs = [pickle.dumps(asked.items[at : at + step], pickle.HIGHEST_PROTOCOL) for at in starts]
    return replace(asked, items=()), runs
