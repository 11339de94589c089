"""Every actor's mailbox: made before the actors, and alive after them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from engine.actors.actor import Mailbox
from engine.actors.messages import BatcherMessage, MemoryMessage, RouterMessage, TelemetryMessage
from engine.actors.recorder_messages import RecorderMessage
from engine.actors.state_messages import StateMessage
from engine.conversation import Run

ASKS = 10_000
"""Requests that may lie in a mailbox unread; the loop is far behind when so many do."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """Every actor's mailbox. They outlive the actors, so that wiring has no cycles."""

    router: Mailbox[RouterMessage]
    batcher: Mailbox[BatcherMessage]
    memory: Mailbox[MemoryMessage]
    telemetry: Mailbox[TelemetryMessage]
    recorder: Mailbox[RecorderMessage]
    state: Mailbox[StateMessage]
    runners: dict[str, Mailbox[Run]]


@contextmanager
def open_boxes(slots: list[str]) -> Iterator[Boxes]:
    with ExitStack() as stack:
        yield Boxes(
            router=stack.enter_context(Mailbox(ASKS)),
            batcher=stack.enter_context(Mailbox(ASKS)),
            memory=stack.enter_context(Mailbox(ASKS)),
            telemetry=stack.enter_context(Mailbox(ASKS)),
            recorder=stack.enter_context(Mailbox(ASKS)),
            state=stack.enter_context(Mailbox(ASKS)),
            runners={slot: stack.enter_context(Mailbox(1)) for slot in slots},
        )
