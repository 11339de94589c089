"""`serai call`: the four calls of a running server, from texts, files, or lines of JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from web.cli.options import settings_from

if TYPE_CHECKING:
    from engine.requests import Task

MANY = 16
"""Calls under way at once with `--jsonl`."""


@click.group()
def call() -> None:
    """Ask a running server: texts, files, or a call a line.

    A key is read from SERAI_KEY in the environment, or from a file.
    """


@dataclass(frozen=True, slots=True)
class Given:
    """What all four calls have in common."""

    model: str
    texts: tuple[str, ...]
    files: tuple[Path, ...]
    jsonl: bool
    output: Path | None
    concurrency: int
    body: str | None
    url: str | None
    key_file: Path | None
    config: Path | None


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    path = click.Path(path_type=Path)
    for decorate in reversed(
        [
            click.argument("model"),
            click.argument("texts", nargs=-1, metavar="[TEXT]..."),
            click.option("--file", "files", multiple=True, type=path, help="A file as an item; repeatable."),
            click.option("--jsonl", is_flag=True, help="Read a call a line, and answer a line each."),
            click.option("--output", type=path, help="Where answers go; with --jsonl it is taken up again."),
            click.option(
                "--concurrency",
                default=MANY,
                show_default=True,
                type=click.IntRange(1, 512),
                help="With --jsonl.",
            ),
            click.option("--body", metavar="JSON", help="Further fields of the call's body."),
            click.option(
                "--url", metavar="URL", help="The server. Default: where the settings say it listens."
            ),
            click.option("--key-file", type=path, help="A file with an API key in its first line."),
            click.option("--config", type=path, help="TOML file to read settings from."),
        ]
    ):
        command = decorate(command)
    return command


@call.command()
@_shared
def encode(**given: Any) -> None:
    """Texts or images to vectors."""
    _call("encode", Given(**given), {})


@call.command()
@click.option("--query", help="What the texts are scored for.")
@_shared
def score(query: str | None, **given: Any) -> None:
    """How well each text answers a query, best first."""
    _call("score", Given(**given), {} if query is None else {"query": {"text": query}})


@call.command()
@click.option("--label", "labels", multiple=True, help="What to look for; repeatable.")
@_shared
def extract(labels: tuple[str, ...], **given: Any) -> None:
    """Entities, classes, objects, or a document's Markdown."""
    _call("extract", Given(**given), {"params": {"labels": list(labels)}} if labels else {})


@call.command()
@click.option("--max-new-tokens", type=click.IntRange(1), help="The longest answer.")
@click.option("--json", "whole", is_flag=True, help="The whole answer at its end, as JSON.")
@_shared
def generate(max_new_tokens: int | None, whole: bool, **given: Any) -> None:
    """A text, printed as it is written."""
    more = {} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}
    _call("generate", Given(**given), more, streamed=not whole and not given["jsonl"])


def _call(name: str, given: Given, more: dict[str, Any], *, streamed: bool = False) -> None:
    import anyio

    from engine.requests import Task

    fields = _merged(more, given.body)
    asking = _Asking(Task(name), given.model, fields, _url(given), _key(given), given.concurrency)
    if given.jsonl:
        anyio.run(_by_line, asking, given)
        return
    body = _body(asking, given, _documents(asking, given))
    with _output(given.output) as out:
        anyio.run(_stream if streamed else _once, asking, body, out)


@dataclass(frozen=True, slots=True)
class _Asking:
    """Whom is asked for what."""

    task: Task
    model: str
    more: dict[str, Any]
    url: str
    key: str | None
    concurrency: int


def _documents(asking: _Asking, given: Given) -> frozenset[str]:
    """Endings of files that are sent as documents: texts too, where the model reads nothing else."""
    import anyio

    from web.calling import bodies
    from web.calling.server import connected

    async def inputs() -> list[str]:
        async with connected(asking.url, asking.key, 1) as server:
            return await server.inputs(asking.model)

    doubtful = any(path.suffix.lower() in bodies.TEXTS for path in given.files)
    if asking.task != "extract" or not doubtful or "text" in anyio.run(inputs):
        return bodies.DOCUMENTS
    return bodies.DOCUMENTS | bodies.TEXTS


def _body(asking: _Asking, given: Given, documents: frozenset[str]) -> dict[str, Any]:
    from web.calling import bodies

    items: list[dict[str, Any]] = [{"text": text} for text in given.texts]
    items += [bodies.item(path, documents) for path in given.files]
    if not items:
        if sys.stdin.isatty():
            raise click.UsageError("Give a TEXT, or a --file, or pipe something in.")
        items = [{"text": bodies.text(sys.stdin.buffer.read(), "standard input")}]
    return bodies.of_items(asking.task, items, asking.more)


async def _once(asking: _Asking, body: dict[str, Any], out: BinaryIO) -> None:
    import orjson

    from web.calling.server import connected

    async with connected(asking.url, asking.key, 1) as server:
        out.write(orjson.dumps(await server.call(asking.task, asking.model, body)) + b"\n")


async def _stream(asking: _Asking, body: dict[str, Any], out: BinaryIO) -> None:
    from web.calling.server import connected

    async with connected(asking.url, asking.key, 1) as server:
        async for text in server.stream(asking.model, body):
            out.write(text.encode())
            out.flush()
    if out.isatty():
        out.write(b"\n")


async def _by_line(asking: _Asking, given: Given) -> None:
    """Raises CallFailed at the end, when a line failed."""
    from web.calling import bodies, lines
    from web.calling.failing import CallFailed
    from web.calling.server import Server, connected

    source = _source(given)

    async def ask(line: bytes, server: Server) -> dict[str, Any]:
        body = bodies.of_line(asking.task, line, asking.more)
        return await server.call(asking.task, asking.model, body)

    with ExitStack() as stack:
        out, before, failed = lines.resumed(given.output) if given.output else (sys.stdout.buffer, 0, 0)
        if given.output:
            stack.enter_context(out)
        total = lines.count(source) if source else None
        told = stack.enter_context(_progress(f"{asking.task} {asking.model}", before, total))
        written = lines.Written(out, lambda done: told(before + done))
        asked = lines.from_file(source, before) if source else lines.from_stdin(before)
        async with connected(asking.url, asking.key, asking.concurrency) as server:
            await lines.run(asked, lambda line: ask(line, server), written, asking.concurrency)
    if failed := failed + written.failed:
        raise CallFailed(f"{failed} of {before + written.done} lines failed; their answers have an error.")


def _source(given: Given) -> Path | None:
    """The file of lines; None for standard input."""
    if given.texts or len(given.files) > 1:
        raise click.UsageError("--jsonl reads standard input, or the one file that --file names.")
    if given.files and not given.files[0].is_file():
        raise click.BadParameter(f"{given.files[0]}: no such file", param_hint="--file")
    return given.files[0] if given.files else None


def _merged(more: dict[str, Any], body: str | None) -> dict[str, Any]:
    """The fields that options stand for and those of --body, which win."""
    import orjson

    try:
        found = orjson.loads(body) if body else {}
    except ValueError as error:
        raise click.BadParameter(f"it is no JSON: {error}", param_hint="--body") from None
    if not isinstance(found, dict):
        raise click.BadParameter("it is no map of fields", param_hint="--body")
    if isinstance(inner := found.get("params"), dict):
        found = {**found, "params": {**more.get("params", {}), **inner}}
    return {**more, **found}


def _url(given: Given) -> str:
    if given.url:
        return given.url if "://" in given.url else f"http://{given.url}"
    settings = settings_from(given.config, ())
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}{settings.base_path}"


def _key(given: Given) -> str | None:
    if given.key_file is None:
        return os.environ.get("SERAI_KEY")
    try:
        return given.key_file.read_text("utf-8").split("\n", 1)[0].strip()
    except OSError as error:
        raise click.BadParameter(f"{given.key_file}: {error.strerror}", param_hint="--key-file") from None


@contextmanager
def _output(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with path.open("wb") as out:
        yield out


@contextmanager
def _progress(title: str, done: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """What to call with the number of lines that are done; drawn on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        line = bars.add_task(title, total=total, completed=done)
        yield lambda now: bars.update(line, completed=now)
