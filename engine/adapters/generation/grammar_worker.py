"""The child that compiles a grammar before the server does: some take minutes, and no thread can be ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from engine.adapters.documents.worker import Handle, serve
from engine.adapters.generation.grammars import compiled


def prepare(setup: Mapping[str, Any]) -> Handle:
    tokens = LLTokenizer("byte")  # what takes long depends on the grammar alone
    LLMatcher(tokens, LLMatcher.grammar_from_regex("a"), log_level=0)

    def handle(request: Mapping[str, Any]) -> Mapping[str, Any]:
        compiled(tokens, request["kind"], request["text"])
        return {}

    return handle


if __name__ == "__main__":
    serve(prepare)
