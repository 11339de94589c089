"""A trace from a file of any form that is known, or that the operator describes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from replay.formats.columns import FORMS, Form, Row, form_of, mapped, moment, named, rows
from replay.trace import NO_SESSION, BadTrace, Trace

MANY = 1_000_000_000
"""A size beyond this is no size."""
LONGEST_NAME = 200
"""Characters of a model's name, or a session's."""
MOST_MODELS = 10_000


def read(
    path: Path,
    *,
    form: str | None = None,
    mapping: Mapping[str, str] | None = None,
    time_unit: float | None = 1.0,
    model: str | None = None,
) -> Trace:
    """Every row of the file. `model` is the name of its service, where no column says; else the file's.

    With `mapping` (field -> column) and `time_unit` (seconds, or None for dates) the form is the
    operator's own. Raises BadTrace naming file and line.
    """
    reader = rows(path)
    first = next(reader, None)
    if first is None:
        raise BadTrace(f"{path} holds no requests.")
    columns = list(first[1])
    chosen = _form(path, columns, form, mapping, time_unit)
    missing = [name for name in chosen.needs if name not in columns]
    if missing:
        raise BadTrace(f"{path} has no column {', '.join(missing)}; it has {named(columns)}.")
    return _collect(path, chosen, chain([first], reader), model or _service(path))


def _service(path: Path) -> str:
    """A file's name without what says how it is written."""
    return path.name.partition(".")[0]


def _form(
    path: Path,
    columns: list[str],
    name: str | None,
    mapping: Mapping[str, str] | None,
    time_unit: float | None,
) -> Form:
    if mapping:
        return mapped(mapping, time_unit)
    if name is None:
        return form_of(columns, path)
    for form in FORMS:
        if form.name == name:
            return form
    raise BadTrace(f"There is no form {name!r}; there are {', '.join(form.name for form in FORMS)}.")


def _collect(path: Path, form: Form, found: Iterable[tuple[int, Row]], service: str) -> Trace:
    when = moment(form)
    arrived, inputs, outputs, sessions = array("d"), array("q"), array("q"), array("q")
    models: list[str] = []
    known: dict[str, str] = {}  # a name is held once, however many rows have it
    numbers: dict[str, int] = {}
    for line, row in found:
        try:
            arrived.append(when(row[form.time]))
            inputs.append(_size(row, form.input_size))
            outputs.append(_size(row, form.output_size))
            model = _name(row, form.model) or service
            models.append(known.setdefault(model, model))
            sessions.append(_session(row, form, numbers))
            if len(known) > MOST_MODELS:
                raise ValueError(f"a trace has at most {MOST_MODELS} models")
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadTrace(f"{path}:{line}: {str(error)[:200]}") from None
    return Trace.of(
        _service(path),
        arrived,
        models=models,
        input_size=inputs,
        output_size=outputs,
        session=sessions,
    )


def _size(row: Row, column: str | None) -> int:
    value = row.get(column) if column else None
    size = int(float(value)) if value not in (None, "") else 0
    if abs(size) > MANY:
        raise ValueError(f"{column} is {value}, which is no size")
    return size


def _name(row: Row, column: str | None) -> str:
    """Empty where the row has none. Raises ValueError for what is no name."""
    value = row.get(column) if column else None
    if value is None:
        return ""
    if not isinstance(value, str | int | float):
        raise ValueError(f"{column} is neither text nor a number")
    name = str(value)
    if len(name) > LONGEST_NAME:
        raise ValueError(f"{column} has more than {LONGEST_NAME} characters")
    return name


def _session(row: Row, form: Form, numbers: dict[str, int]) -> int:
    """A number for the session. A row that names an earlier one is of that one's session."""
    own = _name(row, form.session)
    if not own:
        return NO_SESSION
    parent = _name(row, form.parent)
    if parent not in ("", "-1") and parent in numbers:
        return numbers.setdefault(own, numbers[parent])
    return numbers.setdefault(own, len(numbers))
