"""The server as a guest of its engine: it says where it is, bounds who may come, and leaves in good order."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from aiohttp import ClientSession, TCPConnector

from engine.config import Settings, SettingsError, load
from engine.errors import Stopped
from engine.requests import Request, Response
from tests.web.fakes import FakeEngine
from web.listening import bind, url
from web.serving import serve, stop_on_signal

pytestmark = pytest.mark.anyio

ENCODE = "v1/encode/fake/encoder"
BODY = {"items": [{"text": "hello"}]}


class Drainable(FakeEngine):
    """As the real one: nothing new is let in while it drains, and what was let in is waited for.

    It answers when `gate` opens, if it has one.
    """

    gate: anyio.Event | None = None

    async def submit(self, request: Request) -> Response:
        if not self.accepting:
            raise Stopped
        self.quiet = anyio.Event()
        try:
            response = await super().submit(request)
            if self.gate:
                await self.gate.wait()
            return response
        finally:
            self.quiet.set()

    async def drain(self, limit: float) -> bool:
        self.accepting = False
        if not self.requests:
            return True
        with anyio.move_on_after(limit):
            await self.quiet.wait()
        return self.quiet.is_set()


@asynccontextmanager
async def served(engine: Drainable) -> AsyncIterator[tuple[str, anyio.Event]]:
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        yield await tasks.start(serve, engine, bind(engine.settings), stop), stop
        stop.set()


def settings(**values: object) -> Settings:
    return Settings(port=0, **values)


async def until(condition) -> None:
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110  what is waited for is on the other side of a socket
            await anyio.sleep(0.005)


async def test_it_answers_at_the_address_that_it_says():
    async with served(Drainable(settings())) as (place, _), ClientSession(place) as client:
        async with client.post(ENCODE, json=BODY) as answer:
            assert answer.status == 200
        async with client.get("readyz") as answer:
            assert answer.status == 200

    with pytest.raises(OSError, match="connection attempts failed"):
        await anyio.connect_tcp("127.0.0.1", int(place.rstrip("/").rpartition(":")[2]))


async def test_when_told_to_stop_it_is_not_ready_takes_nothing_new_and_finishes_what_it_has():
    engine = Drainable(settings())
    engine.gate = anyio.Event()
    answers = {}

    async def ask(client, name):
        async with client.post(ENCODE, json=BODY) as answer:
            answers[name] = (answer.status, answer.headers.get("Retry-After"))

    async with served(engine) as (place, stop), ClientSession(place) as client:
        async with anyio.create_task_group() as callers:
            callers.start_soon(ask, client, "before")
            await until(lambda: engine.requests)
            stop.set()
            await until(lambda: not engine.accepting)
            await ask(client, "after")
            async with client.get("readyz") as answer:
                assert answer.status == 503
            async with client.get("healthz") as answer:
                assert answer.status == 200
            engine.gate.set()

    assert answers == {"before": (200, None), "after": (503, "1")}
    assert not engine.left.is_set()


async def test_what_is_still_in_flight_after_the_limit_is_cut_off(caplog):
    engine = Drainable(settings(drain_limit="50ms"), wait=60)

    async def ask(client):
        with pytest.raises(Exception, match="disconnected"):
            await client.post(ENCODE, json=BODY)

    async with served(engine) as (place, stop), ClientSession(place) as client:
        async with anyio.create_task_group() as callers:
            callers.start_soon(ask, client)
            await until(lambda: engine.requests)
            stop.set()

    assert engine.left.is_set()
    assert "still in flight after 0.05 s" in caplog.text


async def test_a_client_that_hangs_up_cancels_its_request():
    engine = Drainable(settings(), wait=60)

    async with served(engine) as (place, _), ClientSession(place) as client:
        with anyio.move_on_after(0.1):
            await client.post(ENCODE, json=BODY)
        with anyio.fail_after(5):
            await engine.left.wait()


async def test_one_connection_too_many_is_told_to_come_back_and_the_next_is_served():
    engine = Drainable(settings(max_connections=2))

    async with served(engine) as (place, _), ClientSession(place, connector=TCPConnector(limit=0)) as other:
        port = int(place.rstrip("/").rpartition(":")[2])
        first = await anyio.connect_tcp("127.0.0.1", port)
        second = await anyio.connect_tcp("127.0.0.1", port)
        async with other.get("healthz") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert (
                (await answer.json())["detail"]["code"] == answer.headers["X-SIE-Error-Code"] == "QUEUE_FULL"
            )
        await first.aclose()
        await anyio.sleep(0.05)
        async with other.get("healthz") as answer:
            assert answer.status == 200
        await second.aclose()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_stops_and_the_second_would_end_the_process(ending):
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}
    stop = anyio.Event()
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(stop_on_signal, stop)
            signal.raise_signal(ending)
            with anyio.fail_after(5):
                await stop.wait()

        assert [signal.getsignal(s) for s in before] == [signal.SIG_DFL, signal.SIG_DFL]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", None), ("::1", "[::1]"), ("127.0.0.2", None)],
)
def test_a_loopback_address_is_listened_on(host, shown):
    chosen = settings(host=host, base_path="/serai")

    with bind(chosen) as listener:
        place = url(listener, chosen)

    assert place.startswith(f"http://{shown or '127.0.0.'}") or "[::1]" in place
    assert place.endswith(f":{listener_port(place)}/serai/")


def listener_port(place: str) -> str:
    return place.removesuffix("/serai/").rpartition(":")[2]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "no such host"])
def test_any_other_address_is_refused_with_its_origin(host):
    with pytest.raises(SettingsError) as caught:
        bind(load({"port": 0}, environ={"SERAI_HOST": host}))

    assert str(caught.value).startswith("SERAI_HOST: host: ")


def test_a_taken_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port: 127.0.0.1:{port}: Address already in use"):
            bind(settings(host="127.0.0.1").model_copy(update={"port": port}))


@asynccontextmanager
async def process(home: Path, device: str = "simulated:one") -> AsyncIterator[anyio.abc.Process]:
    """The command itself, on a device that computes nothing, so that no model library is loaded."""
    places = [f"--set=state_dir={home / 'state'}", f"--store={home / 'store'}"]
    command = [sys.executable, "-m", "web", "serve", "--port=0", f"--device={device}", *places]
    root = Path(__file__).parents[2]
    async with await anyio.open_process(command, cwd=root) as running:
        try:
            yield running
        finally:
            if running.returncode is None:
                running.kill()


async def said(running: anyio.abc.Process) -> str:
    assert running.stdout is not None
    with anyio.fail_after(60):
        return (await running.stdout.receive()).decode()


async def test_the_command_says_one_line_serves_and_ends_well_at_the_first_signal(tmp_path):
    async with process(tmp_path) as running:
        line = await said(running)
        place = line.split()[3]
        async with ClientSession(place) as client, client.get("healthz") as answer:
            assert answer.status == 200
        running.terminate()
        with anyio.fail_after(60):
            code = await running.wait()

    assert line.startswith("Serai is at http://127.0.0.1:")
    assert "simulated:one (3.2 GiB, 1 slots)" in line
    assert code == 0


async def test_the_second_signal_ends_the_process_at_once(tmp_path):
    async with process(tmp_path) as running:
        port = int((await said(running)).split()[3].rstrip("/").rpartition(":")[2])
        half = await anyio.connect_tcp("127.0.0.1", port)
        await half.send(b"POST /v1/encode/x/y HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        await anyio.sleep(0.2)
        running.terminate()
        with pytest.raises(OSError, match="attempts failed"), anyio.fail_after(5):
            while True:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
        running.terminate()
        code = await running.wait()
        await half.aclose()

    assert code == -signal.SIGTERM


async def test_what_the_engine_refuses_at_its_start_costs_one_line(tmp_path):
    async with process(tmp_path, "cuda:99") as running:
        assert running.stderr is not None
        with anyio.fail_after(60):
            complaint = b"".join([chunk async for chunk in running.stderr]).decode()
            code = await running.wait()

    assert code == 1
    assert complaint.startswith("Error: cuda:99: this machine has ")
    assert len(complaint.splitlines()) == 1
