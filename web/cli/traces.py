"""What commands that read traffic take: a recording of this machine's server, a file of one, or a trace."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from replay.recording import Recording
    from replay.trace import Trace


def is_recording(path: Path) -> bool:
    """Whether the file is one of ours, whole or not."""
    try:
        with gzip.open(path, "rb") as file:
            return b'"serai_recording"' in file.read(200)
    except (OSError, EOFError, zlib.error):
        return False


def opened(
    source: str, mapping: Mapping[str, str], unit: float | None, state_dir: Path | None = None
) -> tuple[Trace, Recording | None]:
    """The trace of a file, or of a recording by its name. Raises BadTrace that says what is wrong."""
    from replay.formats.reading import read
    from replay.recording import read_database, read_file

    path = Path(source)
    if not path.is_file() and state_dir is not None:
        recording = read_database(state_dir / "traffic.db", source)
        return recording.trace(), recording
    if is_recording(path):
        recording = read_file(path)
        return recording.trace(), recording
    return read(path, mapping=mapping or None, time_unit=unit), None


def side_by_side(
    sources: Sequence[str], mapping: Mapping[str, str], unit: float | None, state_dir: Path
) -> tuple[Trace, Recording | None]:
    """Several traces as one, by their wall clocks. What was recorded is known of a single recording only."""
    from replay.trace import merged

    found = [opened(source, mapping, unit, state_dir) for source in sources]
    if len(found) == 1:
        return found[0]
    return merged([trace for trace, _ in found]), None


def pairs(said: Sequence[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` again and again, as a map."""
    found = {}
    for each in said:
        name, separator, value = each.partition("=")
        if not separator or not name or not value:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE", param_hint=option)
        found[name.strip()] = value.strip()
    return found
