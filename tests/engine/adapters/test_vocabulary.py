from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from engine.adapters.generation.vocabulary import Grammar, Vocabulary
from engine.errors import InvalidInput
from engine.requests import Grammar as Asked
from tests.engine.adapters.tiny_decoders import byte_level

EOS = 257
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """One token a byte."""
    return Vocabulary(byte_level(), 258, [EOS])


def follows(grammar: Grammar, text: str) -> bool:
    """Whether every token of `text` is allowed at its place; the grammar has then taken it."""
    for token in text.encode():
        if not grammar.allowed()[token]:
            return False
        grammar.take(token)
    return True


def test_a_byte_level_vocabulary_spells_bytes(vocabulary):
    assert vocabulary.spelled[:256] == [bytes([byte]) for byte in range(256)]
    assert vocabulary.spelled[EOS] == b"<|im_end|>"
    assert vocabulary.special == {256, 257}


def test_a_vocabulary_of_pieces_spells_blanks_and_single_bytes():
    pieces = {"<unk>": 0, "\u2581hello": 1, "<0xC3>": 2, "é": 3}
    tokenizer = Tokenizer(models.BPE(pieces, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])

    spelled = Vocabulary(tokenizer, 8, [4]).spelled

    assert spelled[1:] == [b" hello", b"\xc3", "é".encode(), b"</s>", b"", b"", b""]


def test_a_model_may_have_fewer_tokens_than_its_tokenizer_or_more():
    few, many = (Vocabulary(byte_level(), size, [EOS]) for size in (200, 300))

    for vocabulary, size in ((few, 200), (many, 300)):
        allowed = vocabulary.grammar(Asked("regex", "[ab]c")).allowed()
        assert np.flatnonzero(allowed).tolist() == [*b"ab"]
        assert len(allowed) == size


@pytest.mark.parametrize(
    ("kind", "text", "good", "bad"),
    [
        ("json_schema", json.dumps(PERSON), '{"name": "Boé \\"x\\"", "age": 42}', '{"age"'),
        ("json_schema", '{"type": "object"}', '{"a": [1, {"b": null}]}', "[1]"),
        ("regex", "[0-9]{3}-(a|b)", "123-b", "12-"),
        ("lark", 'start: "yes" | "no"', "no", "maybe"),
    ],
)
def test_only_what_the_grammar_says_may_be_written(vocabulary, kind, text, good, bad):
    grammar = vocabulary.grammar(Asked(kind, text))
    first, second = grammar.fresh(), grammar.fresh()

    assert follows(first, good)
    assert first.ended or first.allowed()[EOS]
    assert first.wrong is None
    assert not follows(second, bad)
    assert not grammar.ended


def test_the_end_is_allowed_only_where_the_text_is_whole(vocabulary):
    grammar = vocabulary.grammar(Asked("json_schema", '{"type": "object"}')).fresh()

    assert not grammar.allowed()[EOS]
    assert follows(grammar, "{}")
    assert grammar.ended


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("json_schema", '{"type": "wat"}', "type"),
        ("json_schema", '{"not": {}}', "not"),
        ("json_schema", "[]", "object"),
        ("json_schema", "nonsense", "expected"),
        ("json_schema", '{"$ref": "#/nowhere"}', "nowhere"),
        ("json_schema", '{"type": "string", "pattern": "(a"}', "unclosed"),
        ("regex", "(a", "unclosed"),
        ("regex", "(?=a)b", "look-around"),
        ("lark", "start: nothing", "nothing"),
    ],
)
def test_a_grammar_that_cannot_be_followed_is_refused_with_the_reason(vocabulary, kind, text, said):
    with pytest.raises(InvalidInput, match=said) as refused:
        vocabulary.grammar(Asked(kind, text))
    assert len(refused.value.message) < 400


def test_a_grammar_that_takes_for_ever_is_given_up_and_the_next_is_read(vocabulary):
    """Compiled in a thread it took four minutes, and no thread can be ended."""
    patterns = [{"type": "string", "pattern": f"a{{1,{n}}}"} for n in range(1, 60)]

    with pytest.raises(InvalidInput, match=r"too complex.* longer than 2 s .max_seconds"):
        vocabulary.grammar(Asked("json_schema", json.dumps({"allOf": patterns})))
    assert follows(vocabulary.grammar(Asked("regex", "ab")), "ab")
