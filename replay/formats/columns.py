"""Rows of a file, and the columns that a trace is made of, whatever the file calls them."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from engine.errors import InvalidInput
from engine.records.lines import MIB, Bounds, File, lines
from replay.trace import BadTrace

Row = Mapping[str, Any]

BOUNDS = Bounds(first=MIB, line=MIB, whole=4096 * MIB)
MOST_ROWS = 10_000_000
MOST_COLUMNS = 1000


@dataclass(frozen=True, slots=True)
class Form:
    """What one kind of file calls its columns, and what its clock counts in."""

    name: str
    time: str
    input_size: str | None = None
    output_size: str | None = None
    model: str | None = None
    session: str | None = None
    parent: str | None = None
    """A column with the id of an earlier row, whose session this one belongs to; -1 for none."""
    time_unit: float | None = 1.0
    """Seconds in one of its units; None: dates as text."""
    needs: tuple[str, ...] = ()
    """Columns by which it is known; `time` among them."""


FORMS = (
    Form(
        "azure",
        "TIMESTAMP",
        "ContextTokens",
        "GeneratedTokens",
        time_unit=None,
        needs=("TIMESTAMP", "ContextTokens"),
    ),
    Form(
        "burstgpt",
        "Timestamp",
        "Request tokens",
        "Response tokens",
        model="Model",
        session="Session ID",
        needs=("Timestamp", "Request tokens", "Response tokens"),
    ),
    Form(
        "vidur",
        "arrived_at",
        "num_prefill_tokens",
        "num_decode_tokens",
        needs=("arrived_at", "num_prefill_tokens"),
    ),
    Form(
        "bailian",
        "timestamp",
        "input_length",
        "output_length",
        session="chat_id",
        parent="parent_chat_id",
        needs=("timestamp", "input_length", "chat_id"),
    ),
    Form(
        "mooncake",
        "timestamp",
        "input_length",
        "output_length",
        session="session_id",
        time_unit=0.001,
        needs=("timestamp", "input_length"),
    ),
)
"""Of two that fit the first is it: the more particular come first."""


def rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Line number and row: of JSON lines where the name says so, else of CSV with a header; `.gz` of both.

    A last line that was cut off is left out. Raises BadTrace for anything else that is no row, and for
    more than is held of a file.
    """
    packed = path.suffix == ".gz"
    ending = Path(path.stem if packed else path.name).suffix
    made = _json_rows if ending in (".jsonl", ".ndjson") else _csv_rows
    try:
        with path.open("rb") as raw, gzip.open(raw) if packed else nullcontext(raw) as file:
            for count, row in enumerate(made(path, _texts(file, raw, path)), start=1):
                if count > MOST_ROWS:
                    raise BadTrace(f"{path}:{row[0]}: a trace has at most {MOST_ROWS} rows.")
                yield row
    except InvalidInput as error:
        raise BadTrace(str(error)) from None
    except UnicodeDecodeError:
        raise BadTrace(f"{path} is no text file.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise BadTrace(f"{path} was cut off, or is no gzip file.") from None
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}") from None


def _texts(file: File, raw: IO[bytes], path: Path) -> Iterator[str]:
    for number, line in lines(file, raw, str(path), BOUNDS):
        yield line.decode("utf-8-sig" if number == 1 else "utf-8")


def _csv_rows(path: Path, file: Iterator[str]) -> Iterator[tuple[int, Row]]:
    size = 0

    def counted() -> Iterator[str]:
        nonlocal size
        for line in file:  # a row may go over many, inside of quotes
            size += len(line)
            if size > BOUNDS.line:
                raise BadTrace(f"{path}:{reader.line_num}: a row has at most {BOUNDS.line // MIB} MiB here.")
            yield line

    reader = csv.DictReader(counted())
    held: tuple[int, Row] | None = None
    try:
        if len(reader.fieldnames or ()) > MOST_COLUMNS:
            raise BadTrace(f"{path}:1: a trace has at most {MOST_COLUMNS} columns.")
        for row in reader:
            size = 0
            if held is not None:
                yield held
            held = (reader.line_num, row)
    except csv.Error as error:
        raise BadTrace(f"{path}:{reader.line_num}: {error}") from None
    if held is not None and None not in held[1].values():
        yield held


def _json_rows(path: Path, file: Iterator[str]) -> Iterator[tuple[int, Row]]:
    wrong: BadTrace | None = None
    for number, line in enumerate(file, start=1):
        if wrong is not None:  # it was not the last
            raise wrong
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            wrong = BadTrace(f"{path}:{number}: {error}")
            continue
        except RecursionError:
            raise BadTrace(f"{path}:{number}: its values are nested too deeply.") from None
        if not isinstance(row, dict):
            raise BadTrace(f"{path}:{number}: expected an object")
        yield number, row


def named(columns: Sequence[str]) -> str:
    """For a message: as much as anybody reads."""
    return ", ".join(str(name)[:40] for name in columns[:40]) + (", ..." if len(columns) > 40 else "")


def form_of(columns: Sequence[str], path: Path) -> Form:
    """The form that these columns are of. Raises BadTrace naming the columns when it is none."""
    for form in FORMS:
        if all(name in columns for name in form.needs):
            return form
    known = ", ".join(form.name for form in FORMS)
    raise BadTrace(
        f"{path} has the columns {named(columns)}, which is none of the forms {known}. "
        "Say which is what: --map time=..., and input=, output=, model=, session= where there are such."
    )


def mapped(mapping: Mapping[str, str], time_unit: float | None) -> Form:
    """A form of the operator's own. Raises BadTrace for a field that a trace lacks, or without a time."""
    known = {
        "time": "time",
        "input": "input_size",
        "output": "output_size",
        "model": "model",
        "session": "session",
    }
    if unknown := [field for field in mapping if field not in known]:
        raise BadTrace(f"--map knows {', '.join(known)}; not {', '.join(unknown)}.")
    if "time" not in mapping:
        raise BadTrace("--map needs time=COLUMN.")
    fields = {known[field]: column for field, column in mapping.items()}
    return Form("mapped", time_unit=time_unit, needs=tuple(mapping.values()), **fields)


def moment(form: Form) -> Callable[[Any], float]:
    """Reads the form's time column, in seconds."""
    unit = form.time_unit
    if unit is None:
        return _date
    return lambda value: float(value) * unit


def _date(value: Any) -> float:
    """A date without a zone is taken as UTC."""
    found = datetime.fromisoformat(str(value).strip())
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
