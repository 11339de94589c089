"""A Serai server as its users see it: through HTTP alone, in JSON."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from web.demo.failing import DemoFailed

JSON = {"Accept": "application/json"}
PATIENCE = 600.0
"""Seconds for one answer; a busy machine loads and writes slowly."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What one request cost, as the server says it: milliseconds, and whether it waited for a load."""

    cold: bool
    prepare: float
    queue: float
    load: float
    run: float
    total: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What is resident, by model, and how often each was evicted since the server started."""

    weights: Mapping[str, int]
    floors: Mapping[str, int]
    """The least that each needs beside its weights to run."""
    evictions: Mapping[str, int]

    @property
    def resident_bytes(self) -> int:
        return sum(self.weights.values())


class Server:
    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def post(
        self, task: str, model: str, body: Mapping[str, Any], pipeline: str
    ) -> tuple[dict[str, Any], Spent]:
        """The answer, and what it cost. Requests of one `pipeline` are shown together in the records."""
        headers = {**JSON, "X-Serai-Session": pipeline}
        async with self._asked("POST", f"/v1/{task}/{model}", body, headers) as response:
            return await response.json(), _of_headers(response.headers)

    async def stream(
        self, model: str, body: Mapping[str, Any], pipeline: str
    ) -> AsyncGenerator[str | Spent, None]:
        """The text as it is written, in pieces; the last thing is what it cost."""
        headers = {"Accept": "text/event-stream", "X-Serai-Session": pipeline}
        asked = {**body, "stream": True}
        async with self._asked("POST", f"/v1/generate/{model}", asked, headers) as response:
            async for line in response.content:
                data = line.decode().strip().removeprefix("data: ")
                if not data or data == "[DONE]":
                    continue
                event = orjson.loads(data)
                if "error" in event:
                    raise DemoFailed(f"{model} stopped: {event['error']['message']}")
                yield event["text_delta"]
                if event["done"]:
                    yield _of_event(event)

    async def memory(self) -> Memory:
        async with self._asked("GET", "/v1/models") as response:
            models = (await response.json())["models"]
        weights = {m["name"]: sum(r["weights_bytes"] for r in m["residencies"]) for m in models}
        return Memory(
            {name: size for name, size in weights.items() if size},
            {m["name"]: sum(r["floor_bytes"] for r in m["residencies"]) for m in models},
            {m["name"]: m["evictions"] for m in models},
        )

    async def budget_bytes(self) -> int:
        async with self._asked("GET", "/health") as response:
            return sum(worker["memory_total_bytes"] for worker in (await response.json())["workers"])

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = JSON,
    ) -> AsyncIterator[ClientResponse]:
        """Raises DemoFailed with the server's own words."""
        data = None if body is None else io.BytesIO(orjson.dumps(body))  # large ones are sent in pieces
        said = {**headers, "Content-Type": "application/json"}
        try:
            async with self._session.request(method, path, data=data, headers=said) as response:
                if response.status != 200:
                    why = (await response.json())["detail"]
                    raise DemoFailed(f"{path}: {response.status} {why['code']}: {why['message']}")
                yield response
        except (ClientError, TimeoutError) as error:
            raise DemoFailed(f"{path}: the server did not answer: {error or type(error).__name__}") from error


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Server]:
    timeout = ClientTimeout(total=None, sock_read=PATIENCE)
    async with ClientSession(url, timeout=timeout) as session:
        yield Server(session)


def _of_headers(said: Mapping[str, str]) -> Spent:
    return Spent(
        cold=said["X-Serai-Cold"] == "true",
        prepare=float(said["X-Tokenization-Time"]),
        queue=float(said["X-Queue-Time"]),
        load=float(said["X-Load-Time"]),
        run=float(said["X-Inference-Time"]),
        total=float(said["X-Total-Time"]),
    )


def _of_event(last: Mapping[str, Any]) -> Spent:
    """Headers are gone before a stream's times are known: its last event has them."""
    timing = last["timing"]
    return Spent(
        cold=last["cold"],
        prepare=timing["tokenization_ms"],
        queue=timing["queue_ms"],
        load=timing["load_ms"],
        run=timing["inference_ms"],
        total=timing["total_ms"],
    )
