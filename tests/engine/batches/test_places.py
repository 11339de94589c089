"""Parts of a file of results, read without the rest."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.batches.lines import Result
from engine.batches.places import KEPT, Places


def written(path: Path, *numbers: int) -> Path:
    """A file with the results of these lines, in this order."""
    lines = [msgspec.json.encode(Result(f"batch_req_a_{n}", f"custom {n} " + "x" * n)) for n in numbers]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def named(found: list[tuple[int, bytes]]) -> list[tuple[int, str]]:
    return [(number, msgspec.json.decode(line, type=Result).custom_id.split()[1]) for number, line in found]


def test_answers_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path, places = written(tmp_path / "out", 7, 0, 3, 12, 5), Places()

    assert named(places.among(path, range(4))) == [(0, "0"), (3, "3")]
    assert named(places.among(path, range(4, 8))) == [(5, "5"), (7, "7")]
    assert named(places.among(path, range(12, 99))) == [(12, "12")]
    assert places.among(path, range(13, 99)) == places.among(path, range(1, 3)) == []


def test_a_file_is_read_through_once_and_then_only_where_it_must_be(tmp_path: Path) -> None:
    path, places = written(tmp_path / "out", 1, 0, 2), Places()
    places.among(path, range(1))
    with path.open("r+b") as file:
        file.write(b"#")  # whoever reads the first line again finds no result there

    assert named(places.among(path, range(2, 3))) == [(2, "2")]


def test_a_file_that_is_gone_is_told_and_few_are_remembered(tmp_path: Path) -> None:
    places = Places()
    for number in range(KEPT + 2):
        places.among(written(tmp_path / str(number), 0), range(1))
    (tmp_path / "0").unlink()

    assert len(places._known) == KEPT
    with pytest.raises(FileNotFoundError):
        places.among(tmp_path / "0", range(1))
