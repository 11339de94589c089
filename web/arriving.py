"""How long a body may take to arrive: whoever sends nothing, or hardly anything, is given up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import anyio
from aiohttp import web

from engine.errors import DeadlineExceeded, InvalidInput

STALL = 30.0
"""Seconds of silence."""
SLOWEST = 512
"""Bytes a second, over all the time that was waited: a phone on a bad line sends twenty times as many."""


T = TypeVar("T")


class Arriving:
    """Of one body. `what` names it in complaints."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._size = 0
        self._waited = 0.0

    async def next(self, read: Callable[[], Awaitable[T]]) -> T:
        """What is read next. Only waiting counts, not what is done between two. Raises DeadlineExceeded."""
        began = anyio.current_time()
        try:
            with anyio.fail_after(min(STALL, STALL + self._size / SLOWEST - self._waited)):
                found = await read()
        except TimeoutError:
            waited = self._waited + anyio.current_time() - began
            raise DeadlineExceeded(
                f"{self._what} did not arrive: {self._size} bytes came in {waited:.0f} s. Silence of "
                f"{STALL:g} s, or less than {SLOWEST} bytes a second, is given up."
            ) from None
        self._waited += anyio.current_time() - began
        return found

    def came(self, size: int) -> None:
        """So many bytes of it."""
        self._size += size


async def arriving(request: web.Request, what: str) -> AsyncIterator[bytes]:
    """A bare body as it comes, decompressed. Raises DeadlineExceeded, InvalidInput."""
    patience = Arriving(what)
    while True:
        try:
            chunk = await patience.next(request.content.readany)
        except web.RequestPayloadError:
            raise InvalidInput("The body is not encoded as its headers say.") from None
        if not chunk:
            return
        patience.came(len(chunk))
        yield chunk
