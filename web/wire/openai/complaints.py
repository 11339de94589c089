"""Complaints that name the parameter they are about, as OpenAI's do."""

from __future__ import annotations

from engine.errors import InvalidInput


def wrong(param: str, said: str) -> InvalidInput:
    return InvalidInput(said, param=param)
