"""Chances of tokens, as chat and completions write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.chosen import Chance, Chosen


def of_chat(chosen: Iterable[Chosen]) -> dict[str, Any]:
    content = [{**_token(each.chance), "top_logprobs": [_token(one) for one in each.top]} for each in chosen]
    return {"content": content, "refusal": None}


def of_completion(chosen: Iterable[Chosen], offset: int) -> dict[str, Any]:
    """`offset`: where the first of them begins in the text, in characters."""
    offsets = []
    for each in chosen:
        offsets.append(offset)
        offset += len(_text(each.chance))
    return {
        "tokens": [_text(each.chance) for each in chosen],
        "token_logprobs": [each.chance.logprob for each in chosen],
        "top_logprobs": [{_text(one): one.logprob for one in each.top} for each in chosen],
        "text_offset": offsets,
    }


def _token(chance: Chance) -> dict[str, Any]:
    return {"token": _text(chance), "logprob": chance.logprob, "bytes": list(chance.spelled)}


def _text(chance: Chance) -> str:
    """A token that is part of a character shows its bytes, as OpenAI's do."""
    try:
        return chance.spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in chance.spelled)
