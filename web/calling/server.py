"""The server as the command line sees it: HTTP and JSON."""

from __future__ import annotations

import io
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import orjson
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector

from engine.requests import Task
from web.calling.failing import CallFailed

AGAIN = frozenset({429, 503})
"""Statuses of a server that has no room now."""


class Server:
    def __init__(self, session: ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def call(self, task: Task, model: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The whole answer. Raises CallFailed with the server's own words."""
        async with self._asked(task, model, body) as response:
            answer: dict[str, Any] = orjson.loads(await response.read())
            return answer

    async def stream(self, model: str, body: Mapping[str, Any]) -> AsyncIterator[str]:
        """The text of a generate call as it is written. Raises CallFailed, also in the middle of it."""
        async with self._asked(Task.GENERATE, model, {**body, "stream": True}) as response:
            async for line in response.content:
                data = line.decode().strip().removeprefix("data: ")
                if not data or data == "[DONE]":
                    continue
                event = orjson.loads(data)
                if "error" in event:
                    raise CallFailed(event["error"]["message"], event["error"]["code"])
                yield event["text_delta"]
                if event["done"]:
                    return
            raise CallFailed("the answer broke off before it was whole.")

    async def inputs(self, model: str) -> list[str]:
        """What the model reads. Raises CallFailed."""
        async with self._answered("GET", f"models/{quote(model, safe='/:@')}") as response:
            found: list[str] = orjson.loads(await response.read())["inputs"]
            return found

    @asynccontextmanager
    async def _asked(self, task: Task, model: str, body: Mapping[str, Any]) -> AsyncIterator[ClientResponse]:
        try:
            data = io.BytesIO(orjson.dumps(body))
        except TypeError as error:
            raise CallFailed(f"that cannot be sent as JSON: {error}") from None
        accepted = "text/event-stream" if body.get("stream") else "application/json"
        headers = {"Content-Type": "application/json", "Accept": accepted}
        path = f"{task}/{quote(model, safe='/:@')}"
        async with self._answered("POST", path, data=data, headers=headers) as response:
            yield response

    @asynccontextmanager
    async def _answered(self, method: str, path: str, **sent: Any) -> AsyncIterator[ClientResponse]:
        try:
            async with self._session.request(method, f"{self._url}/v1/{path}", **sent) as response:
                if response.status != 200:
                    raise await _refused(response)
                yield response
        except (ClientError, TimeoutError) as error:
            said = str(error) or type(error).__name__
            raise CallFailed(f"{self._url} does not answer: {said}. Does `serai serve` run there?") from None


async def _refused(response: ClientResponse) -> CallFailed:
    """What the server said; for what is no server of ours, its status."""
    try:
        detail = orjson.loads(await response.read())["detail"]
        code, message = str(detail["code"]), str(detail["message"])
    except (ValueError, KeyError, TypeError):
        return CallFailed(f"{response.url} answered {response.status}, and not as Serai does.")
    item = f" (item {detail['item']})" if "item" in detail else ""
    return CallFailed(message + item, code, _wait(response))


def _wait(response: ClientResponse) -> float | None:
    if response.status not in AGAIN:
        return None
    try:
        wait = float(response.headers.get("Retry-After", "1"))
    except ValueError:
        return 1.0
    return wait if math.isfinite(wait) and wait >= 0 else 1.0


@asynccontextmanager
async def connected(url: str, key: str | None, concurrency: int) -> AsyncIterator[Server]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = ClientTimeout(total=None, sock_connect=10)
    connector = TCPConnector(limit=concurrency)
    async with ClientSession(timeout=timeout, headers=headers, connector=connector) as session:
        yield Server(session, url.rstrip("/"))
