"""Where settings are written: a TOML file, `SERAI_*` variables, flags. Values keep where they came from.

This is the only module that looks at the environment for settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


class SettingsError(Exception):
    """The settings cannot be used as they are; each line names where, which key, and what is wrong."""

    def __init__(self, complaints: Sequence[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = list(complaints)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: the kind of place, and its name as an operator would look for it."""

    kind: Literal["default", "file", "env", "flag"] = "default"
    name: str = "default"

    def __str__(self) -> str:
        return self.name


Given = tuple[str, object, Origin]
"""A key, what it is to be, and who says so."""


def everything(flags: Mapping[str, object], file: Path | None, environ: Mapping[str, str]) -> list[Given]:
    """All that was given, the weakest first. A flag that is None was not given.

    Raises SettingsError for a file that cannot be read.
    """
    path = _file(file, environ)
    return [
        *_places(environ),
        *(_toml(path) if path else ()),
        *_environment(environ),
        *(
            (name.replace("-", "_"), value, Origin("flag", "command line"))
            for name, value in flags.items()
            if value is not None
        ),
    ]


def _file(asked: Path | None, environ: Mapping[str, str]) -> Path | None:
    if asked is None and (named := environ.get("SERAI_CONFIG")):
        asked = Path(named)
    if asked is not None:
        return asked
    home = Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    return next((p for p in (Path("serai.toml"), home / "serai" / "serai.toml") if p.is_file()), None)


def _toml(path: Path) -> list[Given]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError([f"{path}: {error.strerror}"]) from None
    except ValueError as error:
        raise SettingsError([f"{path}: {error}"]) from None
    return [(name, value, Origin("file", str(path))) for name, value in found.items()]


def _places(environ: Mapping[str, str]) -> Iterator[Given]:
    """Defaults that follow the user's own directories."""
    for name, variable in (("store", "XDG_CACHE_HOME"), ("state_dir", "XDG_DATA_HOME")):
        if home := environ.get(variable):
            yield name, Path(home) / "serai", Origin()


def _environment(environ: Mapping[str, str]) -> Iterator[Given]:
    for name, variable in (("hub_endpoint", "HF_ENDPOINT"), ("hub_token", "HF_TOKEN")):
        if variable in environ:
            yield name, environ[variable], Origin("env", variable)
    for variable in sorted(environ):
        if variable.startswith("SERAI_") and variable not in ("SERAI_CONFIG", "SERAI_KEY"):
            name = variable.removeprefix("SERAI_").lower()
            yield name, environ[variable], Origin("env", variable)
