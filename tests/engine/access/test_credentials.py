"""Keys are recognised and cannot be guessed; passwords are kept so that guessing is dear."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.access import credentials
from engine.access.credentials import key_hash, new_key, password_hash, password_is, public_part, same


def test_a_key_names_itself_by_its_first_characters_and_no_two_are_alike():
    keys = {new_key() for _ in range(200)}

    assert len(keys) == 200
    assert {len(key) for key in keys} == {len("serai_") + 43 + 6}
    for key in keys:
        assert public_part(key) == key[6:14]
        assert key[6:14] not in key_hash(key)


@given(st.integers(6, 54), st.sampled_from("0Az9"))
def test_a_key_with_one_wrong_character_is_seen_to_be_none(at, other):
    key = new_key()
    wrong = key[:at] + other + key[at + 1 :]

    assert wrong == key or public_part(wrong) is None


@given(st.text(max_size=80))
def test_what_is_no_key_is_none_whatever_it_is(text):
    assert public_part(text) is None
    assert public_part("serai_" + text) is None


def test_a_key_that_was_cut_or_grew_is_none():
    key = new_key()

    assert [public_part(k) for k in (key[:-1], key + "0", key + "\n", key[6:], key.upper())] == [None] * 5


def test_secrets_are_compared_in_a_time_that_tells_nothing(monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(
        credentials.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b)
    )

    assert same("abc", "abc") and not same("abc", "abd") and not same("\udc00", "ü")
    assert password_is("correct horse", password_hash("correct horse"))
    assert len(compared) == 4


def test_a_password_is_recognised_and_its_hash_says_nothing_of_it():
    kept = password_hash("correct horse")

    assert password_is("correct horse", kept)
    assert not password_is("Correct horse", kept)
    assert not password_is("", kept)
    assert not password_is("x" * 5000, kept)
    assert "correct" not in kept and kept != password_hash("correct horse")
    assert kept.startswith("scrypt$15$8$1$")


def test_a_password_may_be_typed_composed_or_not():
    assert password_is("pa\u0301ssword here", password_hash("p\u00e1ssword here"))


def test_a_hash_of_other_parameters_still_counts():
    """Parameters are kept with each hash, so that they can be raised without locking anybody out."""
    digest = credentials._scrypt("correct horse", b"salt", 10, 8, 1)
    kept = f"scrypt$10$8$1${credentials.b64encode(b'salt').decode()}${credentials.b64encode(digest).decode()}"

    assert password_is("correct horse", kept) and not password_is("other horse", kept)


@pytest.mark.parametrize("password", ["", "short", "x" * 1025])
def test_a_password_that_cannot_withstand_guessing_is_refused(password):
    with pytest.raises(ValueError, match="10 to 1024"):
        password_hash(password)


def test_nobodys_hash_is_no_passwords():
    assert not password_is("", credentials.NOBODY)
