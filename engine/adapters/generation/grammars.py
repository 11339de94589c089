"""Grammars in the library's own words, compiled; first in a child process, where that may take too long."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from engine.adapters.documents.child import Bounds, Child
from engine.errors import EngineError, InputTooLong, InvalidInput, QueueFull
from engine.requests import Grammar

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

LIMITS = LLParserLimits(max_lexer_states=20_000, max_grammar_size=100_000, verbose_errors=False)
"""A state takes 1 or 2 kB: what a caller's grammar may come to hold."""
SPACING: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As `json.dumps` writes it. Free white space is where small models write blanks to their end."""

BOUNDS = Bounds(memory_bytes=512 << 20, resident_bytes=256 << 20, answer_bytes=1 << 20, jobs=1000)
SECONDS = 2.0
"""A schema of 57 kB with 2,000 properties takes 0.3 s on an idle core; one with 60 `allOf` took 4 minutes."""
TURN_SECONDS = 1.0
"""How long a grammar waits for another that is looked at: the thread has other prompts to prepare."""
KNOWN = 512
"""Grammars that are remembered as good: a pipeline sends the same few again and again."""


def compiled(tokens: LLTokenizer, kind: str, text: str) -> LLMatcher:
    """Ready for its first token. Raises InvalidInput with what is wrong with it."""
    name = kind.replace("_", " ")
    try:
        written = _written(kind, text)
    except ValueError as error:
        raise InvalidInput(f"the {name} cannot be read: {error}") from None
    matcher = LLMatcher(tokens, written, log_level=0, limits=LIMITS)
    if matcher.is_error():
        raise InvalidInput(f"the {name} cannot be followed: {brief(matcher.get_error())}")
    return matcher


class Gatekeeper:
    """Lets grammars in that were compiled in a child within `SECONDS`. Any thread may use it."""

    def __init__(self) -> None:
        self._child = Child("engine.adapters.generation.grammar_worker", BOUNDS)
        self._turn = Lock()
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def admit(self, grammar: Grammar) -> None:
        """Raises InvalidInput for one that is wrong or too complex, QueueFull while others are looked at."""
        key = hashlib.sha256(f"{grammar.kind}\n{grammar.text}".encode("utf-8", "surrogatepass")).digest()
        if key in self._known:
            return
        if not self._turn.acquire(timeout=TURN_SECONDS):
            raise QueueFull("Other grammars are being read; try again shortly.").after(1.0)
        try:
            self._child.call({"kind": grammar.kind, "text": grammar.text}, SECONDS)
        except InvalidInput:
            raise
        except InputTooLong as error:
            raise _too_complex(grammar, error) from None
        except EngineError as error:
            raise _too_complex(grammar, error) from error
        finally:
            self._turn.release()
        self._known[key] = None
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)


def _too_complex(grammar: Grammar, error: EngineError) -> InvalidInput:
    name = grammar.kind.replace("_", " ")
    return InvalidInput(f"the {name} is too complex to be followed. {error.message}")


def brief(said: str) -> str:
    """The library's first lines; more of it tells of its own insides."""
    return " ".join(said.split("<state>")[0].split())[:300]


def _written(kind: str, text: str) -> str:
    """In the library's own words. Raises ValueError for a schema that is none."""
    if kind == "json_schema":
        return LLMatcher.grammar_from_json_schema(text, overrides=SPACING)
    if kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    return LLMatcher.grammar_from_lark(text)
