"""The last lines of the log that concern a model, kept in memory for its page.

A line concerns a model when it is bound to it, or when it names the model or a unit of it. That of each
request is left out: under load it would be all that is there. What callers sent is in no line of ours, and
a traceback is told by its error alone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass

from structlog.contextvars import get_contextvars

from engine.journal import model_of

KEPT = 200
"""Lines of one model."""
LONGEST = 500
SOURCES = ("engine", "web", "replay")
REQUESTS = "web.ended"
UNSHOWN = frozenset({"model"})
EMPTY = ("", None, False)


@dataclass(frozen=True, slots=True)
class Line:
    at: float
    """Seconds since the epoch."""
    level: str
    source: str
    text: str


class Tail(logging.Handler):
    def __init__(self, models: Callable[[], Container[str]]) -> None:
        """`models` are those that there are now: of others nothing is kept."""
        super().__init__(logging.INFO)
        self._models = models
        self._lines: dict[str, deque[Line]] = {}
        self.heard = 0
        """Grows with each line that is kept."""

    def of(self, model: str) -> tuple[Line, ...]:
        """The newest first."""
        return tuple(reversed(self._lines.get(model, ())))

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == REQUESTS:
            return
        try:
            known = self._models()
            models = {model for name in _names(record) if (model := model_of(name)) in known}
            if models:
                line = _line(record)
            for model in models:
                self._lines.setdefault(model, deque(maxlen=KEPT)).append(line)
                self.heard += 1
        except Exception:  # as every handler: what goes wrong in a log must not stop what it tells of
            self.handleError(record)

    def forget(self, models: Container[str]) -> None:
        """All lines but those of these models."""
        for model in [model for model in self._lines if model not in models]:
            del self._lines[model]


def _names(record: logging.LogRecord) -> Iterator[str]:
    """What may be a model's or a unit's name: what is bound to the record, and its arguments."""
    for source in (_fields(record), get_contextvars()):
        for key in ("model", "unit"):
            if isinstance(value := source.get(key), str):
                yield value
    args = record.args if isinstance(record.args, tuple) else ()
    for arg in args:
        if isinstance(arg, str) and len(arg) < 1000:
            yield from arg.split(", ")


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    """What `engine.logs.fields_logger` gave it beside its text."""
    return getattr(record, "fields", {})


def _line(record: logging.LogRecord) -> Line:
    """Its text and its fields, those that say something."""
    said = [f"{key}={value}" for key, value in _fields(record).items() if _says(key, value)]
    text = " ".join([record.getMessage(), *said])
    if record.exc_info and record.exc_info[0] is not None:
        text = f"{text}: {record.exc_info[0].__name__}"
    return Line(record.created, record.levelname.lower(), record.name, text[:LONGEST])


def _says(key: str, value: object) -> bool:
    return key not in UNSHOWN and value not in EMPTY


def listen(tail: Tail) -> None:
    for name in SOURCES:
        logging.getLogger(name).addHandler(tail)


def stop(tail: Tail) -> None:
    for name in SOURCES:
        logging.getLogger(name).removeHandler(tail)
