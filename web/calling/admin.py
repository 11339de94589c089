"""`/v1/admin` as the command line asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from web.calling.failing import CallFailed

CHUNK = 2**18


class Admin:
    """One server. Each method is one request; all raise CallFailed with the server's own words."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def get(self, *path: str) -> dict[str, Any]:
        return await self._asked("GET", path)

    async def post(self, *path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return await self._asked("POST", path, orjson.dumps(body or {}))

    async def delete(self, *path: str) -> dict[str, Any]:
        return await self._asked("DELETE", path)

    async def download(self, out: Path, *path: str, query: Mapping[str, str]) -> None:
        """Into the file `out`, which is made when the whole of it is here."""
        part = out.with_name(out.name + ".part")
        async with self._session() as session:
            try:
                async with session.get(self._address(path), params=query) as response:
                    await _checked(response)
                    with part.open("wb") as file:
                        async for chunk in response.content.iter_chunked(CHUNK):
                            file.write(chunk)
            except (ClientError, TimeoutError) as error:
                part.unlink(missing_ok=True)
                raise self._silent(error) from None
        part.replace(out)

    async def upload(self, source: Path, *path: str) -> dict[str, Any]:
        async with self._session() as session:
            try:
                with source.open("rb") as file:
                    async with session.post(self._address(path), data=file) as response:
                        return await _checked(response)
            except (ClientError, TimeoutError) as error:
                raise self._silent(error) from None

    async def _asked(self, method: str, path: tuple[str, ...], body: bytes | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        async with self._session() as session:
            try:
                async with session.request(
                    method, self._address(path), data=body, headers=headers
                ) as response:
                    return await _checked(response)
            except (ClientError, TimeoutError) as error:
                raise self._silent(error) from None

    def _session(self) -> ClientSession:
        return ClientSession(timeout=ClientTimeout(total=None, sock_connect=10), headers=self._headers)

    def _address(self, path: tuple[str, ...]) -> str:
        return "/".join([self._url, "v1", "admin", *(quote(part, safe="") for part in path)])

    def _silent(self, error: Exception) -> CallFailed:
        said = str(error) or type(error).__name__
        return CallFailed(f"{self._url} does not answer: {said}. Does `serai serve` run there?")


async def _checked(response: ClientResponse) -> dict[str, Any]:
    """What it said, where that is JSON. Raises CallFailed for a refusal."""
    if response.status < 400:
        if response.content_type != "application/json":
            return {}
        found: dict[str, Any] = orjson.loads(await response.read())
        return found
    try:
        detail = orjson.loads(await response.read())["detail"]
        code, message = str(detail["code"]), str(detail["message"])
    except (ValueError, KeyError, TypeError):
        raise CallFailed(f"{response.url} answered {response.status}, and not as Serai does.") from None
    raise CallFailed(message, code)
