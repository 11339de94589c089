"""Text that may not leave yet: half characters, and what may be the beginning of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

HALF = "\ufffd"
"""What decoding makes of bytes that are no character, or not one yet."""
CONTEXT = 6
"""Tokens before the first new one that decoding sees: some decoders strip a leading space."""


class Detokenizer:
    """Token by token to text. Never says half a character; special tokens have no text."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = list(prompt[-CONTEXT:])
        self._told = self._decode(self._window)
        self._fresh = len(self._window)  # where the tokens begin whose text was not told

    def push(self, token: int) -> str:
        """The text that is now certain; empty while the last character is not whole."""
        self._window.append(token)
        text = self._decode(self._window)
        if text.endswith(HALF):
            return ""
        piece = text[len(self._told) :]
        self._window = self._window[self._fresh :]
        self._told = self._decode(self._window)
        self._fresh = len(self._window)
        return piece

    def finish(self) -> str:
        """What was held back, less a character that never became whole."""
        return self._decode(self._window)[len(self._told) :].rstrip(HALF)

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


class StopStrings:
    """Lets text through up to the first of some strings; the string itself is never let through."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""

    def push(self, piece: str) -> tuple[str, bool]:
        """The text that may leave, and whether a stop string was met."""
        text = self._held + piece
        found = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if found >= 0:
            self._held = ""
            return text[:found], True
        keep = self._beginning(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def finish(self) -> str:
        """What was held back and was no stop string after all."""
        return self._held

    def _beginning(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop string begins."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
