"""Forms in parts: read piece by piece and in time; what is broken in one is its sender's mistake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from engine.errors import BodyTooLarge, InvalidInput
from web.arriving import Arriving

MOST_PARTS = 64
CHUNK = 2**16
BROKEN = (ValueError, RuntimeError, web.RequestPayloadError, HttpProcessingError)
"""What the library raises: the last for the head of a part, RuntimeError for a `_charset_` that is none."""


class Part:
    """One part of a form. Its names are text that can be written anywhere."""

    def __init__(self, reader: BodyPartReader, patience: Arriving) -> None:
        self._reader = reader
        self._patience = patience
        self.name = _text(reader.name or "")
        self.filename = _text(reader.filename or "")

    async def read(self) -> bytes:
        """The next bytes; empty at its end. Raises InvalidInput, DeadlineExceeded."""
        with _told():
            chunk = await self._patience.next(lambda: self._reader.read_chunk(CHUNK))
        self._patience.came(len(chunk))
        return chunk

    async def pieces(self) -> AsyncIterator[bytes]:
        """All of it, as it comes."""
        while chunk := await self.read():
            yield chunk

    async def whole(self, most: int) -> bytes:
        """All of it. Raises BodyTooLarge beyond `most` bytes."""
        held = bytearray()
        while chunk := await self.read():
            held += chunk
            if len(held) > most:
                name = self.name[:100] or "nameless part"
                raise BodyTooLarge(f"The form's {name} has more than {most} bytes.")
        return bytes(held)

    async def text(self, most: int) -> str:
        """What a field says. Raises InvalidInput beyond `most` bytes."""
        try:
            return (await self.whole(most)).decode("utf-8", "replace")
        except BodyTooLarge as error:
            raise InvalidInput(error.message) from None


class Parts:
    """Those of one request, in the order in which they arrive."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._patience = Arriving("The form")
        self._count = 0

    async def next(self) -> Part | None:
        """None after the last. Raises InvalidInput, DeadlineExceeded."""
        if self._count >= MOST_PARTS:
            raise InvalidInput(f"The form has more than {MOST_PARTS} parts.")
        if not self._count:
            with _told():
                self._form = await self._request.multipart()
        self._count += 1
        with _told():
            reader = await self._patience.next(self._form.next)
        if reader is None:
            return None
        if not isinstance(reader, BodyPartReader):
            raise InvalidInput("The form has a form in it.")
        with _told():
            return Part(reader, self._patience)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BROKEN as error:
        raise InvalidInput(f"The form cannot be read: {_text(str(error))[:200]}.") from None


def _text(name: str) -> str:
    """Bytes that are not UTF-8 come as surrogates, which no database and no JSON takes."""
    return name.encode("utf-8", "replace").decode()
