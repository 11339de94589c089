"""The demo on a terminal: what each stage found as it ends, then tables of what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.status import Status
from rich.table import Table
from rich.text import Text

from engine.quantities import about
from web.demo.models import short
from web.demo.pipeline import Step

INDENT, STAGE, MODEL = 2, 8, 24
WIDE = 110
"""Columns from which a stage and what it found fit on one line."""
COLD, WARM = "[cyan]cold[/]", "[green]warm[/]"
PIPE_WIDTH = 150
"""Columns where nobody says how many there are."""


def screen() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


class Terminal:
    """Watches a pipeline for a person: a line a stage, and the text as it is written."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._live: Live | None = None
        self._text: Text | None = None

    def began(self, stage: str, model: str) -> None:
        self._status = self._console.status(f"{stage}: {short(model)}")
        self._status.start()

    def ended(self, step: Step, found: str) -> None:
        self.quiet()
        cells = [f"[bold]{step.stage}[/]", short(step.model), state(step), f"{step.spent.total / 1000:.2f} s"]
        line = Table.grid(padding=(0, 2, 0, 0))
        for width in (STAGE, MODEL, 4):
            line.add_column(width=width, no_wrap=True)
        line.add_column(width=8, no_wrap=True, justify="right")
        wide = self._console.width >= WIDE
        if wide:
            line.add_column(overflow="fold")
            cells.append(found)
        line.add_row(*cells)
        self._console.print(Padding(line, (0, 0, 0, INDENT)))
        if found and not wide:
            self._console.print(Padding(found, (0, 0, 0, INDENT + STAGE + 2)))

    def wrote(self, text: str) -> None:
        if self._text is None:
            self.quiet()
            self._text = Text(style="italic")
            if self._console.is_terminal:
                self._live = Live(_inset(self._text), console=self._console, refresh_per_second=12)
                self._live.start()
        self._text.append(text)

    def quiet(self) -> None:
        """Nothing moves on the screen any more; what was written stands there."""
        if self._status is not None:
            self._status.stop()
        if self._live is not None:
            self._live.stop()
        elif self._text is not None:
            self._console.print(_inset(self._text))
        self._status = self._live = self._text = None


def _inset(text: Text) -> Padding:
    return Padding(text, (1, INDENT * 2))


def costs(name: str, steps: Sequence[Step], before: Sequence[Step] = ()) -> Table:
    """What each stage cost; beside it what the same stage had cost `before`."""
    warm = sum(not step.spent.cold for step in steps)
    seconds = sum(step.spent.total for step in steps) / 1000
    title = f"{name}: {seconds:.1f} s, {_warmth(warm, len(steps))}"
    table = _table(title, caption="Times in milliseconds. Resident: weights, after the stage.")
    table.add_column("stage", style="bold")
    table.add_column("model", no_wrap=True)
    table.add_column("")
    for heading in ("queue", "load", "prepare", "run", "total"):
        table.add_column(heading, justify="right", no_wrap=True)
    if before:
        table.add_column("before", justify="right", style="dim", no_wrap=True)
    table.add_column("resident", justify="right", no_wrap=True)
    table.add_column("evicted", style="dim", overflow="fold")
    for number, step in enumerate(steps):
        spent = step.spent
        times = [spent.queue, spent.load, spent.prepare, spent.run, spent.total]
        times += [before[number].spent.total] if before else []
        table.add_row(
            step.stage,
            short(step.model),
            state(step),
            *(f"{time:,.0f}" for time in times),
            about(step.memory.resident_bytes),
            ", ".join(map(short, step.evicted)),
        )
    return table


def _warmth(warm: int, stages: int) -> str:
    if not warm:
        return "every model was loaded for it: cold"
    return f"{warm} of {stages} stages found their model still loaded: warm"


def state(step: Step) -> str:
    return COLD if step.spent.cold else WARM


def opening(models: int, budget: int, apart: int) -> str:
    """What is about to be shown. `apart`: weights and working memory of them all, in bytes."""
    return (
        f"{models} models answer one after another, from one server and one budget of {about(budget)} "
        f"for all of them.\nServed apart, their weights and working memory would hold {about(apart)} "
        "the whole time.\n"
    )


def comparison(runs: Iterable[Sequence[Step]], budget: int) -> Table:
    """Weights and working memory of a server for each model, against what one server needed for all."""
    steps = [step for run in runs for step in run]
    used = {step.model: step for step in steps}
    weights, work = sum(s.weights_bytes for s in used.values()), sum(s.floor_bytes for s in used.values())
    most = max(step.memory.resident_bytes for step in steps)
    evictions = sum(len(step.evicted) for step in steps)
    caption = (
        f"{about(weights + work)} against {about(budget)}: {(weights + work) / budget:.1f} times as much. "
        "Working memory: the least that a model runs in.\n"
        "Each server more would also add its own Python and libraries, which are not counted."
    )
    table = _table("What the same would hold", caption)
    table.add_column("a server for each model")
    for heading in ("weights", "working memory", "together"):
        table.add_column(heading, justify="right")
    for model, step in used.items():
        sizes = (step.weights_bytes, step.floor_bytes, step.weights_bytes + step.floor_bytes)
        table.add_row(short(model), *map(about, sizes))
    table.add_section()
    table.add_row(f"{len(used)} servers", *map(about, (weights, work, weights + work)), style="bold")
    said = f"one Serai, {evictions} evictions"
    table.add_row(said, f"{about(most)} at most", "the rest", f"{about(budget)} at most", style="bold")
    return table


def _table(title: str, caption: str) -> Table:
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.title_style, table.caption_style = "bold", "dim"
    table.title_justify = table.caption_justify = "left"
    return table


def invitation(url: str) -> str:
    """How to go on by hand."""
    base = url.rstrip("/")
    asking = "  -H 'content-type: application/json' -H 'accept: application/json' \\\n"
    encode = '{"items": [{"text": "the river rose"}]}'
    extract = (
        '{"items": [{"text": "Paid by Northwind on 3 May."}], "params": {"labels": ["organization", "date"]}}'
    )
    return (
        f"Serai is at {base}, with a console for browsers. For example:\n\n"
        f"curl {base}/v1/encode/sentence-transformers/all-MiniLM-L6-v2 \\\n{asking}  -d '{encode}'\n\n"
        f"curl {base}/v1/extract/spacy/en_core_web_sm \\\n{asking}  -d '{extract}'\n\n"
        f"curl {base}/v1/models\n\nCtrl-C stops it."
    )
