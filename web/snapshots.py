"""The engine's view, taken at most so often however many look, and how many requests end a second."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

from web.engine import Engine
from web.wire import status
from web.wire.pieces import json_bytes

FRESH = 0.5
"""Seconds for which a snapshot serves everybody."""
WINDOW = 10.0
"""Seconds over which requests are counted."""


class Snapshots:
    """What the status routes and sockets send."""

    def __init__(self, engine: Engine, version: str) -> None:
        self._engine = engine
        self._version = version
        self._began = time.monotonic()
        self._ended: deque[tuple[float, int]] = deque()
        self._made: dict[str, tuple[float, str]] = {}

    def worker(self) -> str:
        return self._fresh("worker")

    def cluster(self) -> str:
        return self._fresh("cluster")

    def gateway(self, url: str) -> dict[str, Any]:
        return status.gateway(self._engine.view(), url, self._per_second())

    def _fresh(self, name: str) -> str:
        now = time.monotonic()
        made = self._made.get(name)
        if made and now - made[0] < FRESH:
            return made[1]
        text = json_bytes(self._snapshot(name)).decode()
        self._made[name] = (now, text)
        return text

    def _snapshot(self, name: str) -> dict[str, Any]:
        view, recorded_at = self._engine.view(), time.time()
        if name == "cluster":
            return status.cluster(view, self._per_second(), recorded_at)
        uptime = int(time.monotonic() - self._began)
        server = {"version": self._version, "uptime_seconds": uptime, "pid": os.getpid()}
        return status.worker(self._engine.catalog, view, server, recorded_at)

    def _per_second(self) -> float:
        now, ended = time.monotonic(), sum(self._engine.view().totals.values())
        self._ended.append((now, ended))
        while now - self._ended[0][0] > WINDOW:
            self._ended.popleft()
        since, before = self._ended[0]
        return round((ended - before) / (now - since), 2) if now > since else 0.0
