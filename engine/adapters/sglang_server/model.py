"""A `GenerativeModel` whose sequences run in an SGLang server: a quantum is a while of listening to it.

The server batches by itself and goes on between quanta. What it holds is bounded here: a sequence is
sent when the KV of its prompt and longest answer fits beside those that run, so that the server's own
queue stays empty and no request waits where our scheduler does not see it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from tokenizers import Tokenizer

from engine.adapters.family import Prepared, Progressed
from engine.adapters.sglang_server.answer import Answer
from engine.adapters.sglang_server.server import Server
from engine.adapters.sglang_server.wire import Refused, Stream, Wire
from engine.errors import EngineError, InferenceFailed, RunnerCrashed

LEAST = 0.005
"""Seconds of listening in the shortest quantum."""


class Served:
    """One caller of `advance` at a time: its catalogue entry says `max_slots: 1`."""

    def __init__(self, server: Server, tokenizer: Tokenizer, device_bytes: int, most: int) -> None:
        """`device_bytes`: what it takes of its card; `most`: sequences that the server takes at once."""
        self._server = server
        self._tokenizer = tokenizer
        self._most = most
        self.device_bytes = device_bytes
        self._answers: dict[str, Answer] = {}
        self._heard: SimpleQueue[tuple[Stream, Any] | None] = SimpleQueue()

    @property
    def pids(self) -> frozenset[int]:
        """Processes of ours that hold its memory."""
        return self._server.pids

    def advance(
        self, joining: Mapping[str, Prepared], leaving: Sequence[str], seconds: float
    ) -> Mapping[str, Progressed]:
        """Returns when `seconds` are over or every sequence has ended, whichever is first."""
        until = time.monotonic() + max(seconds, LEAST)
        for job in leaving:
            self._leave(job)
        for job, prepared in joining.items():
            self._answers[job] = Answer(prepared, self._tokenizer)
        self._serve()
        while self._going() and self._listen(until - time.monotonic()):
            self._serve()
        reports = {job: answer.report() for job, answer in self._answers.items()}
        self._answers = {job: answer for job, answer in self._answers.items() if answer.done is None}
        return reports

    def sleep(self) -> int:
        return self._server.sleep()

    def wake(self) -> None:
        self._server.wake()

    def unload(self) -> None:
        self._answers.clear()
        self._server.close()

    def _going(self) -> bool:
        return any(answer.done is None for answer in self._answers.values())

    def _leave(self, job: str) -> None:
        answer = self._answers.pop(job, None)
        if answer is not None and answer.stream is not None and answer.done is None:
            self._abort(answer)

    def _abort(self, answer: Answer) -> None:
        """Beside the quantum, which is not to wait for an answer to this."""
        answer.stream = None
        if wire := self._server.wire:
            threading.Thread(target=wire.abort, args=(answer.rid,), daemon=True).start()

    def _serve(self) -> None:
        """Sends those that fit, in the order in which they came; has the server brought back if it died."""
        waiting = [a for a in self._answers.values() if a.stream is None and a.done is None]
        wire = self._server.wire
        if wire is None:
            self._wait_for_server(waiting)
            return
        running = [a for a in self._answers.values() if a.stream is not None and a.done is None]
        tokens, count = sum(answer.kv_tokens for answer in running), len(running)
        for answer in waiting:
            tokens, count = tokens + answer.kv_tokens, count + 1
            if count > self._most or (count > 1 and tokens > self._server.pool_tokens):
                return
            self._send(answer, wire)

    def _send(self, answer: Answer, wire: Wire) -> None:
        answer.rid = uuid.uuid4().hex
        answer.stream = Stream(wire, answer.body(answer.rid), self._tell)

    def _tell(self, stream: Stream, piece: Any) -> None:
        self._heard.put((stream, piece))

    def _wait_for_server(self, waiting: Sequence[Answer]) -> None:
        if not waiting:
            return
        if error := self._server.revive(lambda: self._heard.put(None)):
            for answer in waiting:
                answer.done = error

    def _listen(self, seconds: float) -> bool:
        """Takes in the next thing that is said. Whether anything was, within `seconds`."""
        if seconds <= 0:
            return False
        try:
            heard = self._heard.get(timeout=seconds)
        except Empty:
            return False
        if heard is None:
            return True
        stream, piece = heard
        answer = next((a for a in self._answers.values() if a.stream is stream), None)
        if answer is not None and answer.done is None:
            self._take(answer, piece)
        return True

    def _take(self, answer: Answer, piece: Any) -> None:
        match piece:
            case None:
                answer.done = InferenceFailed("SGLang ended this answer without saying why.")
            case Refused():
                answer.done = piece.error()
            case Exception():
                self._broke(answer)
            case _:
                answer.take(piece)
                if isinstance(answer.done, EngineError):
                    return
                self._server.answered()
                if answer.done is not None and not (piece.get("meta_info") or {}).get("finish_reason"):
                    self._abort(answer)  # our own stop string was met first

    def _broke(self, answer: Answer) -> None:
        """The server is dying. What nobody has heard of runs once more on the next one."""
        self._server.broke()
        for each in self._answers.values():
            if each.stream is None or each.done is not None:
                continue
            if each.heard:
                text = "The SGLang server died in the middle of this answer; send the request again."
                each.done = RunnerCrashed(text).after(1.0)
            elif each.sent_again:
                text = "The SGLang server died twice while it ran this input."
                each.done = InferenceFailed(text)
            else:
                each.again()
