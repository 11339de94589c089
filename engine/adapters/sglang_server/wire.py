"""What is said to an SGLang server over HTTP, in the shapes of its version 0.5.23."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import EngineError, InferenceFailed, InvalidInput, QueueFull

HOST = "127.0.0.1"
BROKEN = (OSError, http.client.HTTPException)
"""What a call raises when nobody answers, or stops in the middle."""
SILENCE = 330.0
"""Seconds without a word of an answer: the server's own watchdog ends it after 300."""


class Refused(Exception):
    """It answered, with another status than 200."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said[:300]}")
        self.status = status
        self.said = said[:300]

    def error(self) -> EngineError:
        """For whoever asked the model."""
        if self.status == 400:
            return InvalidInput(f"SGLang refuses this: {self.said}")
        if self.status in (429, 503):
            return QueueFull("SGLang's own queue is full.").after(1.0)
        return InferenceFailed(f"SGLang failed on this input with status {self.status}.")


@dataclass(frozen=True, slots=True)
class Loads:
    """How busy it says that it is."""

    running: int
    waiting: int
    max_total_tokens: int


@dataclass(frozen=True, slots=True)
class Wire:
    """One server's address. Any thread may use it."""

    port: int
    key: str
    """Of its control calls."""

    def ready(self) -> bool:
        """Cheap; unlike `/health`, which generates a token."""
        try:
            self._call("GET", "/ready", None, 5.0)
        except (Refused, *BROKEN):
            return False
        return True

    def loads(self) -> Loads:
        """Sums over its ranks. Raises Refused and `BROKEN`."""
        told = self._call("GET", "/v1/loads", None, 10.0)
        ranks = told.get("loads") or [told]
        counts = ("num_running_reqs", "num_waiting_reqs", "max_total_num_tokens")
        return Loads(*(sum(int(rank.get(name, 0)) for rank in ranks) for name in counts))

    def abort(self, rid: str) -> None:
        """Its answer ends where it is. Of one that has ended nothing is said."""
        with contextlib.suppress(Refused, *BROKEN):
            self._call("POST", "/abort_request", {"rid": rid}, 10.0)

    def abort_all(self) -> None:
        self._call("POST", "/abort_request", {"abort_all": True}, 10.0)

    def release(self) -> None:
        """Gives the card's memory back. Only while nothing runs or waits there: it dies of it otherwise."""
        self._call("POST", "/release_memory_occupation", {}, 60.0)

    def resume(self) -> None:
        """Takes back all that `release` gave, and nothing that it did not: it would die of that."""
        self._call("POST", "/resume_memory_occupation", {}, 120.0)

    def probe(self) -> None:
        """One token. Raises as `loads`, and Refused when none comes."""
        body = {"input_ids": [1], "sampling_params": {"max_new_tokens": 1, "ignore_eos": True}}
        told = self._call("POST", "/generate", body, 60.0)
        if len(told.get("output_ids") or ()) != 1:
            raise Refused(200, "a probe was answered without a token")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float) -> dict[str, Any]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=seconds)
        with contextlib.closing(connection):
            answer = _asked(connection, method, path, body, self.key)
            said = answer.read()
        told = json.loads(said) if said[:1] == b"{" else {}
        return told if isinstance(told, dict) else {}


class Stream:
    """One answer as it is written, read by a thread of its own, which hands each piece to `tell`.

    A piece is the whole answer so far, as the server says it. The last thing told is None, or what
    ended the answer before its end: Refused, or one of `BROKEN`.
    """

    def __init__(self, wire: Wire, body: Mapping[str, Any], tell: Callable[[Stream, Any], None]) -> None:
        self._wire = wire
        self._body = {**body, "stream": True}
        self._tell = tell
        threading.Thread(target=self._read, name=f"answer {body['rid']}", daemon=True).start()

    def _read(self) -> None:
        try:
            for piece in self._pieces():
                self._tell(self, piece)
        except (Refused, ValueError, *BROKEN) as error:
            self._tell(self, error)
            return
        self._tell(self, None)

    def _pieces(self) -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPConnection(HOST, self._wire.port, timeout=SILENCE)
        with contextlib.closing(connection):
            answer = _asked(connection, "POST", "/generate", self._body, self._wire.key)
            for line in answer:
                if line.startswith(b"data: [DONE]"):
                    return
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        raise http.client.IncompleteRead(b"")


def _asked(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: Mapping[str, Any] | None,
    key: str,
) -> http.client.HTTPResponse:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise Refused(answer.status, _message(answer.read(4096)))
    return answer


def _message(said: bytes) -> str:
    try:
        told = json.loads(said)
        error = told.get("error", told)
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, AttributeError, KeyError):
        return said.decode("utf-8", "replace")
