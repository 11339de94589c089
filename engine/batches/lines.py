"""The lines of a batch: checked all at once, then read one by one; and results as lines."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from engine.batches.kept import MOST_COMPLAINTS, Batch, Complaint, Spent


class Line(msgspec.Struct):
    """One call."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class Answered(msgspec.Struct):
    status_code: int
    request_id: str
    body: msgspec.Raw


class Wrong(msgspec.Struct):
    code: str
    message: str


class Result(msgspec.Struct):
    """One line of an output or error file. `error` is of lines that were never sent. The id comes first."""

    id: str
    custom_id: str
    response: Answered | None = None
    error: Wrong | None = None


class _Usage(msgspec.Struct):
    """Each API has its own names for them; an answer has one of either."""

    prompt_tokens: int = 0
    input_tokens: int = 0
    completion_tokens: int = 0
    output_tokens: int = 0


class _Body(msgspec.Struct):
    usage: _Usage | None = None


class _Response(msgspec.Struct):
    body: _Body


class _Good(msgspec.Struct):
    response: _Response


@dataclass(slots=True)
class Checked:
    """Where each line begins, and what is wrong: then nothing of the batch is run."""

    starts: array[int] = field(default_factory=lambda: array("Q"))
    complaints: list[Complaint] = field(default_factory=list)


def check(path: Path, endpoint: str, most_lines: int, most_bytes: int) -> Checked:
    """Read all of it. Empty lines do not count; a line may have `most_bytes`. Blocks."""
    found, seen, at = Checked(), set[str](), 0
    with path.open("rb") as file:
        for number, line in enumerate(_lines(file, most_bytes), 1):
            if line.strip():
                if len(found.starts) == most_lines:
                    said = f"A batch has at most {most_lines} lines (batch_lines); make several of it."
                    found.complaints.append(Complaint("too_many_lines", said, number))
                    break
                found.starts.append(at)
                if complaint := _wrong(line, number, endpoint, most_bytes, seen):
                    found.complaints.append(complaint)
                    if len(found.complaints) == MOST_COMPLAINTS:
                        break
            at = file.tell() if len(line) > most_bytes else at + len(line)
    if not found.starts:
        found.complaints.append(Complaint("empty_file", "The file has no lines."))
    return found


def read(file: BinaryIO, start: int) -> Line:
    """The line that begins at `start`, which was checked. Blocks."""
    file.seek(start)
    return msgspec.json.decode(file.readline(), type=Line)


def result_id(batch: Batch, line: int) -> str:
    return f"batch_req_{batch.id.partition('_')[2]}_{line}"


def number(result: bytes) -> int:
    """Of the line that this is the result of. Its id stands first, so the rest is not read."""
    return int(result[: result.index(b'",')].rpartition(b"_")[2])


def spent(result: bytes) -> Spent:
    """By an answer, as its own `usage` tells it."""
    used = msgspec.json.decode(result, type=_Good).response.body.usage or _Usage()
    return Spent(used.prompt_tokens + used.input_tokens, used.completion_tokens + used.output_tokens)


def _lines(file: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """A line that is too long comes cut, and is longer than `most_bytes` still."""
    while line := file.readline(most_bytes + 2):
        while not line.endswith(b"\n") and len(line) > most_bytes and (rest := file.readline(2**20)):
            line = line[: most_bytes + 1]
            if rest.endswith(b"\n"):
                break
        yield line


def _wrong(line: bytes, number: int, endpoint: str, most_bytes: int, seen: set[str]) -> Complaint | None:
    """What is wrong with one line; its id is in `seen` from now on."""
    if len(line) > most_bytes:
        said = f"This line has more than {most_bytes} bytes (max_body_bytes)."
        return Complaint("line_too_long", said, number)
    try:
        call = msgspec.json.decode(line, type=Line)
    except msgspec.ValidationError as error:
        return Complaint("invalid_request", f"This line is no call: {error}.", number)
    except (ValueError, RecursionError) as error:
        return Complaint("invalid_json_line", f"This line is not JSON: {error}.", number)
    if call.custom_id in seen:
        said = f"custom_id {call.custom_id[:100]!r} is there twice."
        return Complaint("duplicate_custom_id", said, number, "custom_id")
    seen.add(call.custom_id)
    if call.method.upper() != "POST":
        return Complaint("invalid_method", "method is POST.", number, "method")
    if call.url != endpoint:
        said = f"url is {call.url[:200]!r}, but the batch is for {endpoint!r}."
        return Complaint("mismatched_url", said, number, "url")
    if not bytes(call.body).startswith(b"{"):
        return Complaint("invalid_request", "body is a map.", number, "body")
    return None
