"""The routes that an application has, as the reference names them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

PATTERN = re.compile(r"{(\w+)(?::[^}]*)?}")


@dataclass(frozen=True, slots=True)
class Route:
    """`path` names its variables without saying what they may be."""

    method: str
    path: str
    text: str
    """What its handler says of itself."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def variables(self) -> list[str]:
        return PATTERN.findall(self.path)


def of(definitions: Iterable[web.AbstractRouteDef]) -> tuple[Route, ...]:
    """All but directories of files."""
    return tuple(
        Route(found.method, PATTERN.sub(r"{\1}", found.path), _text(found.handler))
        for found in definitions
        if isinstance(found, web.RouteDef)
    )


def _text(handler: object) -> str:
    """A handler that says nothing is the one that its module is about."""
    said = inspect.getdoc(handler) or inspect.getdoc(inspect.getmodule(handler)) or ""
    return re.sub(r"^`[A-Z]+ [^:]*: ", "", said)
