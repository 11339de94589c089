"""What can go wrong with a server under load, done to it on purpose: what its clients then see and lose."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession
from yarl import URL

from tests.acceptance.asking import DOCUMENTS, Call, ask, clients, encode
from tests.acceptance.serving import PATIENCE, Server
from tests.acceptance.simulated import BROKEN, ENCODER, GREEDY, HUGE, STALLED, WRITER

NO_ANSWER = "no answer"
JSON = {"Accept": "application/json"}


@dataclass
class Load:
    """Callers that ask for one encoding after another, and how they were answered: by code, or `200`."""

    seen: Counter[str] = field(default_factory=Counter)
    without_retry: int = 0
    """Refusals to come again that did not say when."""
    over: bool = False

    async def caller(self, session: ClientSession, number: int) -> None:
        turn = 0
        while not self.over:
            turn += 1
            try:
                await self._once(session, f"caller {number} turn {turn}")
            except (ClientError, TimeoutError):
                self.seen[NO_ANSWER] += 1
                await asyncio.sleep(0.05)

    async def _once(self, session: ClientSession, text: str) -> None:
        path, body = encode(text, model=ENCODER)
        async with session.post(path, json=body) as answer:
            said = await answer.json()
        code = "200" if answer.status == 200 else said["detail"]["code"]
        self.seen[code] += 1
        if answer.status != 200:
            self.without_retry += answer.status == 503 and float(answer.headers.get("Retry-After", 0)) <= 0
            await asyncio.sleep(0.05)


@asynccontextmanager
async def under_load(server: Server, callers: int) -> AsyncIterator[tuple[ClientSession, Load]]:
    """The block begins once the first were answered; the callers stop at its end."""
    load = Load()
    async with clients(server.url) as session, asyncio.TaskGroup() as tasks:
        for number in range(callers):
            tasks.create_task(load.caller(session, number))
        await until(lambda: load.seen["200"] >= callers)
        try:
            yield session, load
        finally:
            load.over = True


async def until(condition: Callable[[], Any]) -> None:
    """What it waits for is asked beside the callers."""
    late = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < late, condition
        await asyncio.sleep(0.02)


def told(answer: tuple[int, Mapping[str, Any]]) -> str:
    status, said = answer
    return "200" if status == 200 else str(said["detail"]["code"])


def document(paragraphs: int) -> Call:
    text = "\n\n".join(f"## Part {n}\n\n- one\n- two\n\nSome text." for n in range(paragraphs))
    data = base64.b64encode(text.encode()).decode()
    return f"/v1/extract/{DOCUMENTS}", {"items": [{"document": {"data": data, "format": "md"}}]}


async def kill_a_document_child(server: Server, session: ClientSession) -> tuple[str, str]:
    """What the document in it was told, and the next one."""
    await asyncio.to_thread(_ready, server, DOCUMENTS)
    assert "error" not in (await ask(session, document(1)))[1]["items"][0]
    running = asyncio.create_task(ask(session, document(4000)))
    await until(lambda: server.total("serai_device_busy_slots", device="cpu") >= 1)
    children = [c for c in server.seen.children(recursive=True) if "document_worker" in " ".join(c.cmdline())]
    for child in children:
        child.kill()
    assert children
    outcomes = []
    for answer in (await running, await ask(session, document(1))):
        item = answer[1]["items"][0] if answer[0] == 200 else {"error": answer[1]["detail"]}
        outcomes.append(item["error"]["code"] if "error" in item else "200")
    return outcomes[0], outcomes[1]


async def slow_documents(session: ClientSession, count: int) -> tuple[str, int]:
    """What an interactive document is told, asked for once the first of another caller's `count` slow ones
    has ended, and how many of these were converted before it."""
    quoted = b"".join(b"> " * 15 + b"*a* [b](c) **d**\n" for _ in range(150))
    converted: list[str] = []
    first = asyncio.Event()

    async def convert(who: str, text: bytes, service_class: str) -> str:
        path, body = f"/v1/extract/{DOCUMENTS}", {"document": {"data": base64.b64encode(text).decode()}}
        headers = {"Authorization": f"Bearer {who}", "X-Serai-Class": service_class}
        async with session.post(path, json={"items": [body]}, headers=headers) as answer:
            said = told((answer.status, await answer.json()))
        if said == "200":
            converted.append(who)
        first.set()
        return said

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(convert("one", quoted, "background"))
        await first.wait()
        before = len(converted)
        said = await convert("another", b"# Hello", "interactive")
        meanwhile = converted[before:]
    return said, meanwhile.index("another") if said == "200" else len(meanwhile)


def _ready(server: Server, model: str) -> None:
    server.http.post(f"/v1/admin/models/{model}/load").raise_for_status()


async def fail_loads(session: ClientSession, each: int) -> dict[str, Counter[str]]:
    """By model: a load that fails, stalls, does not fit; and a batch that runs out of memory."""
    calls = {
        BROKEN: encode("a", model=BROKEN),
        STALLED: encode("a", model=STALLED),
        HUGE: encode("a", model=HUGE),
        f"{GREEDY}, more than fits": encode("a b c d e f g", model=GREEDY),
        f"{GREEDY}, what fits": encode("a b", model=GREEDY),
    }
    asked = [(name, call) for name, call in calls.items() for _ in range(each)]
    answers = await asyncio.gather(*(ask(session, call) for _, call in asked))
    seen = {name: Counter[str]() for name in calls}
    for (name, _), answer in zip(asked, answers, strict=True):
        seen[name][told(answer)] += 1
    return seen


@contextmanager
def small_disk(place: Path, mebibytes: int) -> Iterator[Path]:
    """A directory on a disk of that size. Raises PermissionError where nobody may mount one."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        raise PermissionError("a small disk needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Not a byte is left on it until the block ends."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    try:
        yield
    finally:
        filler.unlink()


def batch_of(server: Server, lines: int, model: str = ENCODER) -> str:
    """The path of a batch that runs."""
    body = {"model": model, "input": "text"}
    line = {"method": "POST", "url": "/v1/embeddings", "body": body}
    content = "\n".join(json.dumps({"custom_id": f"c{n}", **line}) for n in range(lines))
    file = server.http.post("/v1/files", content=content).raise_for_status().json()["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    return f"/v1/batches/{server.http.post('/v1/batches', json=asked).raise_for_status().json()['id']}"


def ended(server: Server, batch: str) -> list[str]:
    """The lines that were answered, once the batch has ended."""
    server.until(lambda: server.http.get(batch).json()["status"] == "completed", step=0.1)
    output = server.http.get(batch).json()["output_file_id"]
    content = server.http.get(f"/v1/files/{output}/content").raise_for_status().text
    return [json.loads(line)["custom_id"] for line in content.splitlines()]


def acts_without_disk(server: Server) -> dict[str, str]:
    """What an operator and a batch's owner are told while nothing can be written."""
    acts = {
        "pin": server.http.post(f"/v1/admin/models/{ENCODER}/pin", headers=JSON),
        "file": server.http.post("/v1/files", content="x" * 100_000, headers=JSON),
        "ready": server.http.get("/readyz"),
    }
    return {name: _code(answer) for name, answer in acts.items()}


def _code(answer: Any) -> str:
    if answer.status_code == 200:
        return "200"
    said = answer.json()
    error = said.get("detail") or said.get("error")
    return f"{answer.status_code} {error['code']}"


async def cut_streams(server: Server, session: ClientSession, count: int) -> None:
    """Each client leaves after the first piece of its text; returns when the server holds nothing of them."""
    body = {"prompt": "a b c", "max_new_tokens": 4000, "stream": True}

    async def leave() -> None:
        async with session.post(f"/v1/generate/{WRITER.replace('/', '__')}", json=body) as answer:
            assert answer.status == 200
            await answer.content.readline()

    await asyncio.gather(*(leave() for _ in range(count)))
    await until(lambda: not server.model(WRITER)["in_flight"])


async def cut_answers(server: Server, count: int, items: int = 2000) -> None:
    """Clients that read the head of a large answer and are gone; returns when nothing of them is held."""
    body = json.dumps({"items": [{"text": f"text{n}", "id": f"{n}" * 40} for n in range(items)]}).encode()
    address = URL(server.url)
    head = (
        f"POST /v1/encode/{ENCODER} HTTP/1.1\r\nHost: {address.authority}\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    async def leave() -> None:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(head.encode() + body)
            assert b" 200 " in await reader.readline()
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    for _ in range(count):
        await leave()
    await until(lambda: server.total("serai_held_request_bytes") < len(body))


async def end(server: Server) -> int:
    """SIGTERM; its exit status."""
    server.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(server.process.wait, PATIENCE)
