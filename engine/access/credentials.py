"""Secrets: how keys are made and recognised, and how passwords are kept.

A key has 256 random bits, so nobody can guess it from its hash: one SHA-256 keeps it, and checking it
costs nothing on each request. A password is a person's choice and can be guessed: scrypt makes every
guess cost 32 MiB and a tenth of a second.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import unicodedata
import zlib
from base64 import b64decode, b64encode

PREFIX = "serai_"
PUBLIC = 8
"""So many characters of a key name it in lists and in the table; the others stay secret (over 200 bits)."""
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BODY = 43  # what 32 bytes take in base 62
_SUM = 6  # and what a CRC-32 takes

LEAST_PASSWORD = 10
MOST_PASSWORD = 1024
_LOG_N, _R, _P = 15, 8, 1


def new_key() -> str:
    """A key: `serai_`, 32 random bytes in base 62, and a checksum that catches what was cut or mistyped."""
    body = _base62(int.from_bytes(secrets.token_bytes(32)), _BODY)
    return PREFIX + body + _checksum(body)


def public_part(key: str) -> str | None:
    """What names the key in the table; None for what cannot be a key of ours."""
    body, checksum = key.removeprefix(PREFIX)[:_BODY], key[len(PREFIX) + _BODY :]
    if not key.startswith(PREFIX) or len(body) != _BODY or not set(body) <= set(_DIGITS):
        return None
    return body[:PUBLIC] if checksum == _checksum(body) else None


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def same(one: str, other: str) -> bool:
    """Compared in a time that does not tell how much of the two agrees."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def password_hash(password: str) -> str:
    """The password as it is kept, with its salt and parameters. Takes about 0.1 s: call it in a thread.

    Raises ValueError for one that is too short to withstand guessing, or absurdly long.
    """
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        raise ValueError(f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD} characters")
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _LOG_N, _R, _P)
    return f"scrypt${_LOG_N}${_R}${_P}${b64encode(salt).decode()}${b64encode(digest).decode()}"


def password_is(password: str, kept: str) -> bool:
    """Whether this is the password that was kept. Takes about 0.1 s: call it in a thread."""
    _, log_n, r, p, salt, digest = kept.split("$")
    if len(password) > MOST_PASSWORD:
        return False
    found = _scrypt(password, b64decode(salt), int(log_n), int(r), int(p))
    return hmac.compare_digest(found, b64decode(digest))


NOBODY = f"scrypt${_LOG_N}${_R}${_P}${b64encode(bytes(16)).decode()}${b64encode(bytes(32)).decode()}"
"""No password has this hash: checked for a name that does not exist, so that it takes as long."""


def _scrypt(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    # The same word typed on two keyboards may be composed differently.
    text = unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
    n = 1 << log_n
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=32)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _SUM)
