"""Documents that are slow to open keep out neither texts nor other people's documents."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import anyio
import pytest

from engine.actors.workbench import OLDEST, PAPERS, Line, Waiting
from engine.requests import ExtractOptions, Item, Media, Request, ServiceClass, Task
from tests.simulation import catalog, engine, model, request

R = TypeVar("R")
INTERACTIVE, STANDARD, BACKGROUND = ServiceClass
TEXTS = model("a/texts")
PAPER = model("a/papers", ("extract",), inputs=("document",), limits={"max_slots": 1, "max_batch_jobs": 1})


class Opening:
    """Where preparers are made and documents are opened, each of which takes a second."""

    def __init__(self) -> None:
        self.at_once = self.most = self.opened = 0

    async def __call__(self, work: Callable[[], R], /) -> R:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await anyio.sleep(1.0)
        self.at_once -= 1
        self.opened += 1
        return work()


def paper(key: str, service_class: ServiceClass | None = None) -> Request:
    items = (Item(document=Media(b"%PDF-")),)
    options = ExtractOptions()
    return Request("q", Task.EXTRACT, "a/papers", items, options, service_class, principal=key)


@pytest.mark.anyio
async def test_a_hundred_slow_documents_of_one_key_keep_nobody_else_out() -> None:
    opening = Opening()
    async with engine(catalog(TEXTS, PAPER), opening=opening) as opened, anyio.create_task_group() as group:
        await opened.submit(request("a/texts", "warm"))
        await opened.submit(paper("a"))
        opening.most = 0
        for _ in range(100):
            group.start_soon(opened.submit, paper("a"))
        await anyio.sleep(0.1)

        began, before = anyio.current_time(), opening.opened
        await opened.submit(request("a/texts", "quick"))
        texts = anyio.current_time() - began
        await opened.submit(paper("b", INTERACTIVE))
        urgent = opening.opened - before
        await opened.submit(paper("c"))
        turn, most = opening.opened - before, opening.most
        group.cancel_scope.cancel()

    assert texts < 0.1
    assert urgent <= 2 * PAPERS  # those that were being opened, then its own with one beside it
    assert turn <= 4 * PAPERS
    assert most <= PAPERS


@pytest.mark.anyio
async def test_a_document_whose_client_left_is_not_opened() -> None:
    opening = Opening()
    async with engine(catalog(PAPER), opening=opening) as opened:
        await opened.submit(paper("a"))
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(opened.submit, paper("a"))
            await anyio.sleep(0.1)
            group.cancel_scope.cancel()
        before = opening.opened
        await opened.submit(paper("b"))

        assert opening.opened - before <= PAPERS + 1
        await anyio.sleep(5.0)
        assert opened.view().held_bytes == 0


def _waits(number: int, key: str, service_class: ServiceClass) -> Waiting:
    asked = SimpleNamespace(request=SimpleNamespace(principal=key))
    going: Any = SimpleNamespace(service_class=service_class, submit=asked)
    return Waiting(going, None, None, number)  # type: ignore[arg-type]


def test_class_goes_first_then_turns_and_the_oldest_now_and_then() -> None:
    line = Line()
    for number in range(10):
        line.add(_waits(number, "a", BACKGROUND))
    for number in range(10, 40):
        line.add(_waits(number, "b" if number < 38 else "c", STANDARD))
    line.add(_waits(40, "d", INTERACTIVE))

    taken = []
    while line:
        assert line.next() is line.next()
        taken.append(line.take().number)

    assert taken[:5] == [40, 10, 38, 11, 39]
    assert [taken.index(number) for number in range(3)] == [OLDEST - 1, 2 * OLDEST - 1, 3 * OLDEST - 1]
    assert sorted(taken) == list(range(41))
