from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from engine.adapters.generation.stopping import Detokenizer, StopStrings
from tests.engine.adapters.tiny_decoders import byte_level

BYTES = byte_level()


def written(text: str, stops: list[str], size: int) -> tuple[str, bool]:
    """What comes out when `text` goes in by pieces of `size`."""
    strings = StopStrings(stops)
    out = ""
    for at in range(0, len(text), size):
        piece, stopped = strings.push(text[at : at + size])
        out += piece
        if stopped:
            return out, True
    return out + strings.finish(), False


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("one. two. three", ["."], ("one", True)),
        ("one\n\ntwo", ["\n\n", "three"], ("one", True)),
        ("aaab", ["aab"], ("a", True)),
        ("no stop here", ["stops"], ("no stop here", False)),
        ("ends like a sto", ["stop"], ("ends like a sto", False)),
        ("stop", ["stop"], ("", True)),
        ("either or", ["or", "either"], ("", True)),
        ("anything", [], ("anything", False)),
    ],
)
def test_text_passes_up_to_the_first_stop_string(text, stops, expected, size):
    assert written(text, stops, size) == expected


def simply(text: str, stops: list[str], size: int) -> tuple[str, bool]:
    """The same, by looking at everything again after each piece."""
    for end in range(0, len(text) + size, size):
        found = [at for stop in stops if (at := text[:end].find(stop)) >= 0]
        if found:
            return text[: min(found)], True
    return text, False


@given(
    st.text("ab", max_size=40), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.integers(1, 5)
)
def test_holding_back_gives_what_looking_at_everything_gives(text, stops, size):
    assert written(text, stops, size) == simply(text, stops, size)


def test_what_may_begin_a_stop_string_waits():
    strings = StopStrings(["END", "\n\n"])

    assert strings.push("the E") == ("the ", False)
    assert strings.push("N") == ("", False)
    assert strings.push("T\n") == ("ENT", False)
    assert strings.finish() == "\n"


@given(st.text(max_size=20))
def test_characters_come_whole_or_not_at_all(text):
    detokenizer = Detokenizer(BYTES, [])
    pieces = [detokenizer.push(byte) for byte in text.encode()]

    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text
    assert "".join(pieces) + detokenizer.finish() == text.rstrip("\ufffd")


def test_half_a_character_at_the_end_is_dropped():
    detokenizer = Detokenizer(BYTES, [])

    assert [detokenizer.push(byte) for byte in "aé".encode()[:2]] == ["a", ""]
    assert detokenizer.finish() == ""


def test_bytes_that_are_no_character_do_not_stop_what_follows():
    detokenizer = Detokenizer(BYTES, [])

    assert [detokenizer.push(byte) for byte in b"a\xff\xffb"] == ["a", "", "", "\ufffd\ufffdb"]


def test_a_decoder_that_strips_the_first_space_keeps_the_one_after_the_prompt():
    tokenizer = Tokenizer(models.WordLevel({"\u2581Hello": 0, "\u2581world": 1, "[UNK]": 2}, "[UNK]"))
    tokenizer.decoder = decoders.Metaspace()

    assert Detokenizer(tokenizer, [0]).push(1) == " world"
