"""What adapter_config.json says of an adapter, by types and bounds, and of which layers it says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from engine.adapters.forward.weights import BadWeights

MAX_RANK = 1024
_MAX_BYTES = 4 << 20
_NEEDED = {"peft_type": "LORA", "bias": "none"}
_REFUSED = (
    "alora_invocation_tokens",
    "arrow_config",
    "corda_config",
    "fan_in_fan_out",
    "layer_replication",
    "lora_bias",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
)
"""Keys of the configuration that, when set, change what the matrices mean."""

Rank = Annotated[int, Meta(ge=1, le=MAX_RANK)]
Alpha = Annotated[float, Meta(ge=-1e6, le=1e6)]
_Key = Annotated[str, Meta(min_length=1, max_length=512)]
_PLAIN = re.compile(r"\^?(?:[A-Za-z0-9_-]|\\?\.)+\$?")
"""A name or the end of one. A regular expression of a file is never run: one that backtracks holds the
interpreter, and with it the server."""


class Said(Struct, frozen=True):
    r: Rank
    lora_alpha: Alpha
    use_rslora: bool | None = None
    rank_pattern: Annotated[dict[_Key, Rank], Meta(max_length=4096)] | None = None
    alpha_pattern: Annotated[dict[_Key, Alpha], Meta(max_length=4096)] | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """One alternative of a key. `like` is compared letter by letter; `?` stands for any."""

    like: str
    whole: bool

    def ends(self, layer: str) -> bool:
        before, tail = layer[: -len(self.like)], layer[-len(self.like) :]
        if len(tail) != len(self.like) or any(
            a not in ("?", b) for a, b in zip(self.like, tail, strict=True)
        ):
            return False
        return not before or (before.endswith(".") and not self.whole)


def read(path: Path) -> Said:
    """Raises BadWeights for what is no configuration of an adapter that can be served."""
    try:
        with open(path / "adapter_config.json", "rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise BadWeights(f"{path}/adapter_config.json is larger than {_MAX_BYTES >> 20} MiB")
        config = msgspec.json.decode(text, type=dict[str, Any])
        _check(path, config)
        return msgspec.convert(config, Said)
    except BadWeights:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise BadWeights(f"{path}/adapter_config.json cannot be read: {error}") from error


def _check(path: Path, config: Mapping[str, Any]) -> None:
    for key, wanted in _NEEDED.items():
        if config.get(key) != wanted:
            raise BadWeights(f"{path}: {key} is {config.get(key)!r}; only {wanted!r} can be served")
    if wrong := [key for key in _REFUSED if config.get(key)]:
        raise BadWeights(f"{path}: adapters with {', '.join(wrong)} cannot be served")


Patterns = list[tuple[tuple[Ending, ...], float]]


def patterns(path: Path, by_key: Mapping[str, float] | None) -> Patterns:
    """As PEFT's `get_pattern_key` matches: a key is the end of a layer's name from a dot on, `a|b` either.

    Raises BadWeights for a key that is another regular expression.
    """
    return [
        (tuple(_ending(path, key, each) for each in key.split("|")), value)
        for key, value in (by_key or {}).items()
    ]


def of(layer: str, known: Patterns, otherwise: float) -> float:
    return next((value for ends, value in known if any(each.ends(layer) for each in ends)), otherwise)


def _ending(path: Path, key: str, each: str) -> Ending:
    if not _PLAIN.fullmatch(each):
        raise BadWeights(
            f"{path}: rank_pattern or alpha_pattern has the key {key[:80]!r}; names of layers, their ends "
            "and `a|b` can be served, other regular expressions cannot. Write out the names of the layers"
        )
    bare = each.removeprefix("^").removesuffix("$")
    like = bare.replace("\\.", "\0").replace(".", "?").replace("\0", ".")
    return Ending(like, each.startswith("^"))
