"""The two demos from start to end: a server, the pipeline, what it cost, and then whoever comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread
from rich.console import Console

from engine.config import MiB
from engine.quantities import about
from web.demo import claim, invoice, screen
from web.demo.claims import CLAIMS
from web.demo.client import Server, connected
from web.demo.pipeline import Step
from web.demo.server import served

MEMORY = {"claim": 1760 * MiB, "invoice": 800 * MiB}
"""Of which headroom leaves four fifths: less than the weights of all its models, enough for each of them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the demo is to run."""

    pipeline: str
    store: Path
    detect: bool
    stay: bool
    """Whether it serves on after the tables."""
    models: int
    apart: Callable[[], int]
    """Bytes that the models would hold with a server each. Slow: it imports what they stand on."""


class Reckoned:
    """A figure that is worked out in a thread while the server starts."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.bytes = 0

    async def reckon(self, figure: Callable[[], int]) -> None:
        self.bytes = await to_thread.run_sync(figure, abandon_on_cancel=True)
        self.done.set()


async def show(plan: Plan, console: Console) -> bool:
    """Whether it came to its end, rather than to a signal. Raises DemoFailed."""
    ended = False
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        apart = Reckoned()
        tasks.start_soon(apart.reckon, plan.apart)
        with console.status("starting the server"):
            url = await stack.enter_async_context(served(MEMORY[plan.pipeline], plan.store))
            server = await stack.enter_async_context(connected(url))
            budget = await server.budget_bytes()
        console.print(f"[bold]Serai[/] is at {url} with {about(budget)} for models.")
        with console.status("adding up what its models would hold apart"):
            await apart.done.wait()
        console.print(screen.opening(plan.models, budget, apart.bytes))
        terminal = screen.Terminal(console)
        stack.callback(terminal.quiet)
        runs = await PIPELINES[plan.pipeline](plan, server, console, terminal)
        console.print(screen.comparison(runs, budget))
        ended = True
        if plan.stay:
            console.print()
            console.print(screen.invitation(url), markup=False, soft_wrap=True)
            await anyio.sleep_forever()
    return ended


async def _claims(
    plan: Plan, server: Server, console: Console, terminal: screen.Terminal
) -> list[Sequence[Step]]:
    """Claims one after another; each table has the first one's times beside its own."""
    runs: list[Sequence[Step]] = []
    for number, each in enumerate(CLAIMS, 1):
        console.print(f"[bold]Claim {number}[/]: {each.insured} sends a scanned form and a photo\n")
        done = await claim.review(server, each, f"claim-{number}", terminal, detect=plan.detect)
        runs.append(done.steps)
        console.print()
        console.print(screen.costs(f"Claim {number}", done.steps, runs[0] if number > 1 else ()))
        console.print()
    return runs


async def _invoice(
    plan: Plan, server: Server, console: Console, terminal: screen.Terminal
) -> list[Sequence[Step]]:
    console.print(f"[bold]An invoice[/]: {invoice.QUESTION}\n")
    done = await invoice.answer(server, "invoice", terminal)
    console.print()
    console.print(screen.costs("Invoice", done.steps))
    console.print()
    return [done.steps]


PIPELINES = {"claim": _claims, "invoice": _invoice}
