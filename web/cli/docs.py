"""`serai docs`: pages that are made from the code, so that they cannot disagree with it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from engine.declarations import Declaration

_HEAD = """\
# Settings

This page is made from `engine/config.py` by `make docs`; a test compares the two.

A setting is read from a TOML file, then from the environment, then from flags; the last one wins.
The file is the one that `--config` or `SERAI_CONFIG` names, else `serai.toml` in the working directory,
else `serai/serai.toml` in `$XDG_CONFIG_HOME` (`~/.config`). It is a flat list of keys:

```toml
port = 8080
memory = "2GiB"
pins = ["sentence-transformers/all-MiniLM-L6-v2"]
```

In the environment a key is written in capitals after `SERAI_`: `SERAI_MEMORY=2GiB`.
On the command line any key can be set with `--set memory=2GiB`; the frequent ones have flags of their own.
An unknown key is an error, in all three places.
Bytes are a number, or `512MB`, `2GiB`. Durations are seconds, or `200ms`, `2s`, `5min`.
Lists are TOML lists in the file, or in every place one text with commas: `"a, b"`; `"a"` is a list of one.
An empty text means no value.
`$XDG_CACHE_HOME` and `$XDG_DATA_HOME` move the two default directories.
In Kubernetes, give the pod `enableServiceLinks: false` if a Service is called `serai`: the variables that
it would add, such as `SERAI_PORT`, read as settings.
"""


def settings_page() -> str:
    """docs/settings.md as it should be."""
    from engine.declarations import declarations

    parts = [_HEAD]
    for section, members in groupby(declarations(), key=lambda d: d.section):
        parts += [f"\n## {section}\n\n", "| key | default | unit | what it is |\n| --- | --- | --- | --- |\n"]
        parts += [f"| `{d.name}` | {_default(d)} | {d.unit} | {d.help} |\n" for d in members]
    return "".join(parts)


def _default(declared: Declaration) -> str:
    from engine.quantities import as_duration, as_size

    value = declared.default
    if value is None or value in ((), ""):
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if declared.unit == "bytes":
        return f"`{as_size(value)}`"
    return f"`{as_duration(value)}`" if declared.unit == "duration" else f"`{value}`"


@click.group()
def docs() -> None:
    """Print the reference pages."""


@docs.command()
def settings() -> None:
    """Every setting: key, default, unit, meaning. As Markdown."""
    click.echo(settings_page(), nl=False)
