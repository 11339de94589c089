"""A server that speaks the native wire as the target of a replay: Serai, or a peer."""

from __future__ import annotations

import io
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import anyio
import orjson
from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    TCPConnector,
)

from engine.catalog import Catalog, ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import Request, ServiceClass, Task
from replay.payloads import Call
from replay.replaying.target import NOT_SENT, Look, Outcome
from replay.trace import BadTrace
from web.replaying import bodies

BROKEN = "CONNECTION_LOST"
"""The outcome of a request whose answer broke off."""

JSON = "application/json"


class Http:
    shares_process = False

    def __init__(self, session: ClientSession, url: str, catalog: Catalog) -> None:
        self.name = url
        self._session = session
        self._url = url
        self._catalog = catalog
        self._sees_devices = True
        self._estimates = True

    async def specs(self, models: Sequence[str]) -> list[ModelSpec]:
        """As the server lists them; of one that lists none as our own catalogue has them."""
        try:
            listed = (await self._get("/v1/models"))["models"]
            found = {name: _spec(each) for each in listed for name in (each["name"], *each["aliases"])}
        except (_Unseen, KeyError, TypeError, ValueError):
            return [self._own(model) for model in models]
        if missing := [model for model in models if model not in found]:
            said = f"{self._url} does not serve {', '.join(missing)}"
            raise BadTrace(f"{said}. Say which model is meant: --as NAME=MODEL.")
        return [found[model] for model in models]

    def _own(self, model: str) -> ModelSpec:
        try:
            return self._catalog.resolve(model)[0]
        except EngineError as error:
            raise BadTrace(f"{error} Say which model is meant: --as NAME=MODEL.") from None

    async def estimate(self, request: Request) -> tuple[int, ...]:
        if not self._estimates:
            raise InvalidInput("This server does not estimate.")
        body = {**bodies.of(request), "task": request.task, "model": request.model}
        body.pop("stream", None)
        try:
            async with self._session.post(
                f"{self._url}/v1/estimate", data=_data(body), headers=_json()
            ) as response:
                if response.status != 200:
                    self._estimates = response.status != 404
                    raise InvalidInput(f"{self._url} does not estimate: {response.status}.")
                return tuple(orjson.loads(await response.read())["costs"])
        except (ClientError, TimeoutError, ValueError, KeyError) as error:
            raise InvalidInput(f"{self._url} does not estimate: {error}.") from None

    async def send(self, call: Call) -> Outcome:
        request = call.request
        path = f"{self._url}/v1/{request.task}/{quote(request.model, safe='/:@')}"
        try:
            async with self._session.post(
                path, data=_data(bodies.of(request)), headers=_headers(call)
            ) as response:
                if response.status != 200:
                    return Outcome(await _code(response))
                if request.task is Task.GENERATE:
                    return await _written(response)
                await response.read()
                return _outcome(response.headers)
        except ClientConnectorError:
            return Outcome(NOT_SENT)
        except (ClientError, TimeoutError, OSError):
            return Outcome(BROKEN)

    async def load(self, model: str) -> None:
        """Make it resident, as its operator. Raises BadTrace with what the server says to that."""
        path = f"{self._url}/v1/admin/models/{quote(model, safe='/:@')}/load"
        async with self._session.post(path, headers={"Accept": JSON}) as response:
            if response.status != 200:
                raise BadTrace(f"{model} could not be loaded: {await _code(response)}.")

    async def look(self) -> Look:
        """Nothing of a server that does not show itself, or not to us."""
        if not self._sees_devices:
            return Look()
        try:
            devices = (await self._get("/v1/admin/devices"))["devices"]
            models = (await self._get("/v1/models"))["models"]
            return Look(devices, {each["name"]: int(each["loads"]) for each in models})
        except (_Unseen, KeyError, TypeError, ValueError):
            self._sees_devices = False
            return Look()

    async def _get(self, path: str) -> Any:
        try:
            with anyio.fail_after(10):
                async with self._session.get(self._url + path, headers={"Accept": JSON}) as response:
                    if response.status != 200:
                        raise _Unseen
                    return orjson.loads(await response.read())
        except (ClientError, TimeoutError, OSError):
            raise _Unseen from None


class _Unseen(Exception):
    """The server does not say."""


def _spec(listed: Mapping[str, Any]) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "id": listed["name"],
            "family": "remote",
            "tasks": listed["tasks"],
            "inputs": listed["inputs"],
            "max_tokens": listed["max_sequence_length"],
            "service_class": listed.get("service_class", "standard"),
            "sources": [{"directory": "/"}],
        }
    )


def _data(body: Mapping[str, Any]) -> io.BytesIO:
    return io.BytesIO(orjson.dumps(body))


def _json() -> dict[str, str]:
    return {"Content-Type": JSON, "Accept": JSON}


def _headers(call: Call) -> dict[str, str]:
    request = call.request
    said = _json() | {"X-Request-ID": request.id}
    if request.task is Task.GENERATE:
        said["Accept"] = "text/event-stream"
    if request.service_class is not None:
        said["X-Serai-Class"] = ServiceClass(request.service_class).name.lower()
    if request.session is not None:
        said["X-Serai-Session"] = request.session
    if math.isfinite(call.deadline):
        said["X-Serai-Deadline-Ms"] = f"{call.deadline * 1000:.0f}"
    return said


async def _code(response: ClientResponse) -> str:
    """What a refusal is called; of a server that is no Serai, its status."""
    try:
        return str(orjson.loads(await response.read())["detail"]["code"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP_{response.status}"


def _outcome(headers: Mapping[str, str]) -> Outcome:
    return Outcome(
        code="degraded" if "X-Serai-Degraded" in headers else "ok",
        prepare=_seconds(headers.get("X-Tokenization-Time")),
        queue=_seconds(headers.get("X-Queue-Time")),
        load=_seconds(headers.get("X-Load-Time")),
        run=_seconds(headers.get("X-Inference-Time")),
        cold=headers.get("X-Serai-Cold") == "true",
    )


def _seconds(milliseconds: str | None) -> float:
    try:
        return float(milliseconds) / 1000 if milliseconds is not None else math.nan
    except ValueError:
        return math.nan


async def _written(response: ClientResponse) -> Outcome:
    """A text that is streamed, to its end. Where its time went stands in its last event."""
    async for line in response.content:
        data = line.strip().removeprefix(b"data: ")
        if not data.startswith(b"{"):
            continue
        event = orjson.loads(data)
        if "error" in event:
            return Outcome(str(event["error"].get("code", "INFERENCE_ERROR")))
        if event.get("done"):
            return _told(event)
    return Outcome(BROKEN)


def _told(event: Mapping[str, Any]) -> Outcome:
    spent = event.get("timing") or {}

    def seconds(name: str) -> float:
        return float(spent.get(name) or 0.0) / 1000 if spent else math.nan

    return Outcome(
        "ok",
        prepare=seconds("tokenization_ms"),
        queue=seconds("queue_ms"),
        load=seconds("load_ms"),
        run=seconds("inference_ms"),
        cold=bool(event.get("cold")),
        output_tokens=int((event.get("usage") or {}).get("completion_tokens", 0)),
    )


@asynccontextmanager
async def connected(url: str, key: str | None, catalog: Catalog) -> AsyncIterator[Http]:
    """As many connections as there are requests under way: nothing waits for another here."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = ClientTimeout(total=None, sock_connect=10)
    connector = TCPConnector(limit=0, keepalive_timeout=60)
    async with ClientSession(timeout=timeout, headers=headers, connector=connector) as session:
        yield Http(session, url.rstrip("/"), catalog)
