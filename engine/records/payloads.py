"""Content that is being recorded: until a time limit or a size is reached, whichever comes first."""

from __future__ import annotations

import logging
import sqlite3

from engine.records.content import Content, packed
from engine.records.views import PayloadWish, RunningView
from engine.requests import Request

HELD = 64 * 2**20
"""Bytes that wait for the writer at most; what comes beyond is not kept."""

Taken = tuple[float, Request, bytes]
"""When it came, on the loop's clock, the request, and what is written of it."""

log = logging.getLogger(__name__)


class Payloads:
    """`take` and `drain` are called on the event loop, `write` and `close` in the writer's thread."""

    def __init__(self, file: Content, wish: PayloadWish, until: float) -> None:
        self.until = until
        self.requests = 0
        self.size = 0
        self.ended = False
        self._file = file
        self._wish = wish
        self._waiting: list[Taken] = []
        self._held = 0

    def take(self, at: float, request: Request, now: float) -> None:
        """One that does not fit any more ends it."""
        if self.ended or request.model not in self._wish.models:
            return
        body = packed(request)
        if now >= self.until or self.size + len(body) > self._wish.max_bytes:
            self.ended = True
            return
        if self._held + len(body) > HELD:
            return
        self._held += len(body)
        self.size += len(body)
        self.requests += 1
        self._waiting.append((at, request, body))

    def drain(self) -> list[Taken]:
        found, self._waiting, self._held = self._waiting, [], 0
        return found

    def write(self, found: list[Taken], offset: float) -> None:
        """A disk that is full ends this, and nothing else."""
        try:
            if found:
                self._file.write([(at + offset, request, body) for at, request, body in found])
        except sqlite3.Error as error:
            log.error("content is not recorded any more: %s", error)
            self.requests -= len(found)
            self.ended = True

    def close(self, rest: list[Taken], offset: float) -> None:
        self.write(rest, offset)
        self._file.close()

    def shown(self, name: str, started_at: float, offset: float) -> RunningView:
        models = () if self.ended else self._wish.models
        return RunningView(name, started_at, models, self.size, self.until + offset)
