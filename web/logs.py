"""Where log lines go: through one bounded queue to a thread that writes them to stderr, never to the loop.

A line has its fields and the context of the request, batch or load it belongs to. Exceptions are shown by
type and place; what they say may repeat a payload, so it is written only where no payload is near.
"""

from __future__ import annotations

import logging
import queue
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import orjson
import structlog
from structlog.contextvars import get_contextvars
from structlog.typing import EventDict, Processor

if TYPE_CHECKING:
    from engine.config import Settings

CAPACITY = 20_000
"""Lines that wait for the writer. Beyond it they are dropped and counted: a stuck pipe stops nobody."""

FAR_FROM_PAYLOADS = frozenset(
    {
        "engine.loading",
        "engine.running",
        "engine.changeover",
        "engine.cataloguing",
        "engine.adjustments",
        "engine.watching",
        "engine.timekeeper",
        "engine.audit",
        "engine.operators",
    }
)
"""Loggers of weights, catalogue and operators: the text of their exceptions is written too."""

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class Sender(QueueHandler):
    """Takes what only the caller knows (context, exception), and leaves the rest to the writer."""

    def __init__(self, lines: queue.Queue[Any]) -> None:
        super().__init__(lines)
        self.lost = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        if record.args:
            record.msg, record.args = record.getMessage(), None
        if record.exc_info and record.exc_info[1] is not None:
            # Its frames hold tensors and bodies, which must not wait in a queue.
            record.exception = shown(record.exc_info[1], with_text=record.name in FAR_FROM_PAYLOADS)
        record.exc_info = record.exc_text = None
        if not hasattr(record, "told"):  # one that says all there is of its request
            record.context = get_contextvars()
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.lost += 1


def shown(error: BaseException, *, with_text: bool) -> str:
    """A traceback as Python writes it; without what the exceptions say unless `with_text`."""
    whole = traceback.TracebackException.from_exception(error)
    if with_text:
        return "".join(whole.format())
    lines: list[str] = []
    for one in _chain(error):
        lines += ["Traceback (most recent call last):\n", *traceback.format_tb(one.__traceback__)]
        lines.append(f"{type(one).__module__}.{type(one).__qualname__}\n")
        for member in one.exceptions if isinstance(one, BaseExceptionGroup) else ():
            lines.append(shown(member, with_text=False))
    return "".join(lines)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception's causes, the first of them first."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return reversed(found)


@contextmanager
def log_to(stream: TextIO, settings: Settings) -> Iterator[Sender]:
    """All logging of the process, until the block ends; then everything that waits has been written."""
    lines: queue.Queue[Any] = queue.Queue(CAPACITY)
    sender, writer = Sender(lines), logging.StreamHandler(stream)
    writer.setFormatter(Written(renderer(stream, settings.log_format)))
    listener = QueueListener(lines, writer)
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    root.handlers[:], level = [sender], settings.log_level.upper()
    root.setLevel(level)
    server = logging.getLogger("aiohttp.server")
    server.addFilter(as_client_mistake)
    logging.captureWarnings(True)
    listener.start()
    try:
        with warnings.catch_warnings():
            # Their text is what a client sent.
            warnings.filterwarnings("ignore", module=r"aiohttp\.multipart")
            yield sender
    finally:
        if sender.lost:
            logging.getLogger(__name__).error("%d log lines were lost: stderr does not keep up", sender.lost)
        logging.captureWarnings(False)
        server.removeFilter(as_client_mistake)
        listener.stop()
        root.setLevel(before[0])
        root.handlers[:] = before[1]


def renderer(stream: TextIO, log_format: str) -> Processor:
    """`auto` is for people on a terminal and for machines elsewhere."""
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    if console:
        return structlog.dev.ConsoleRenderer(colors=stream.isatty())
    return structlog.processors.JSONRenderer(_json)


class Written(logging.Formatter):
    """Renders a record, in the writer's thread."""

    def __init__(self, render: Processor) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        return str(self._render(None, record.levelname.lower(), fields(record)))


def fields(record: logging.LogRecord) -> EventDict:
    """In the order in which they are read: what every line has, its context, then its own."""
    told = getattr(record, "told", None)
    line: EventDict = {
        "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": record.getMessage(),
        **getattr(record, "context", {}),
        **(told.fields() if told is not None else getattr(record, "fields", {})),
    }
    if exception := getattr(record, "exception", None):
        line["exception"] = exception
    return line


def _json(line: EventDict, **_: Any) -> str:
    return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def as_client_mistake(record: logging.LogRecord) -> bool:
    """What a client sent that is no HTTP is one line of its kind, not an error of ours with a traceback."""
    from aiohttp.http_exceptions import HttpProcessingError

    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.msg, record.args = "a client sent no proper HTTP: %s", (type(error).__name__,)
        record.exc_info = None
    return True
