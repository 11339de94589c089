"""Options that say which server a command speaks to, and with whose key."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from web.cli.options import settings_from

if TYPE_CHECKING:
    from web.calling.admin import Admin


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--url`, `--key-file`, `--config`; the command gets `server`, to be called once it runs."""

    @functools.wraps(command)
    def wrapped(
        *args: Any, url: str | None, key_file: Path | None, config: Path | None, **given: Any
    ) -> None:
        def server() -> Admin:
            from web.calling.admin import Admin

            return Admin(address(url, config), key(key_file))

        command(*args, server=server, **given)

    path = click.Path(path_type=Path)
    for decorate in reversed(
        [
            click.option(
                "--url", metavar="URL", help="The server. Default: where the settings say it listens."
            ),
            click.option("--key-file", type=path, help="A file with an API key in its first line."),
            click.option("--config", type=path, help="TOML file to read settings from."),
        ]
    ):
        wrapped = decorate(wrapped)
    return wrapped


def address(url: str | None, config: Path | None) -> str:
    if url:
        return url if "://" in url else f"http://{url}"
    settings = settings_from(config, ())
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}{settings.base_path}"


def key(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("SERAI_KEY")
    try:
        return path.read_text("utf-8").split("\n", 1)[0].strip()
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--key-file") from None
