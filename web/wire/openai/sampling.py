"""What chat, completions and responses have in common: how an answer is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct

from engine.requests import GenerateOptions, ServiceClass
from web.wire import options
from web.wire.bodies import Asked
from web.wire.openai.complaints import wrong

DEFAULT_TOKENS = 1024
"""Room for an answer is kept from its start: an open end would keep all of the model's length."""
MAX_STOPS = 16
TIERS = {"flex": ServiceClass.BACKGROUND, "priority": ServiceClass.INTERACTIVE}
TINY = 1e-6
"""`top_p` of 0 means the likeliest token alone."""

Tokens = Annotated[int, Meta(ge=1, le=2**20)]


class StreamOptions(Struct):
    include_usage: bool | None = None


class Sampled(Struct):
    """Fields of OpenAI's that change nothing here (`user`, `store`, `metadata`, ...) are not listed."""

    model: str
    temperature: float | None = None
    top_p: float | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    service_tier: str | None = None
    lora_adapter: Annotated[str, Meta(min_length=1)] | None = None
    """Not OpenAI's: an adapter of the model; the name `model:adapter` says the same."""


@dataclass(frozen=True, slots=True)
class Writing(Asked):
    """A text that is asked for, and what its answer shows beside it."""

    model: str = ""
    include_usage: bool = False


def chosen(read: Sampled, most: int, **more: Any) -> GenerateOptions:
    """Raises InvalidInput naming the parameter that is wrong."""
    if read.n not in (None, 1):
        raise wrong("n", f"n is {read.n}; only one answer is written to a request. Send it {read.n} times.")
    return GenerateOptions(
        max_new_tokens=most,
        temperature=_within(read.temperature, 1.0, 0, 2, "temperature"),
        top_p=max(TINY, _within(read.top_p, 1.0, 0, 1, "top_p")),
        stop=_stop(read.stop),
        seed=read.seed,
        frequency_penalty=_within(read.frequency_penalty, 0.0, -2, 2, "frequency_penalty"),
        presence_penalty=_within(read.presence_penalty, 0.0, -2, 2, "presence_penalty"),
        logit_bias=_bias(read.logit_bias or {}),
        lora=read.lora_adapter,
        **more,
    )


def tier(read: Sampled) -> ServiceClass | None:
    """Other tiers, `auto` and `default` among them, are the model's own class."""
    return TIERS.get(read.service_tier or "")


def usage_wanted(read: Sampled) -> bool:
    return bool(read.stream_options and read.stream_options.include_usage)


def _within(value: float | None, default: float, least: float, most: float, name: str) -> float:
    if value is None:
        return default
    if not least <= value <= most:
        raise wrong(name, f"{name} is {value:g}; it lies between {least:g} and {most:g}.")
    return value


def _stop(given: str | list[str] | None) -> tuple[str, ...]:
    stop = [given] if isinstance(given, str) else given or []
    if len(stop) > MAX_STOPS:
        raise wrong("stop", f"stop has {len(stop)} entries; at most {MAX_STOPS} are taken.")
    if not all(stop):
        raise wrong("stop", "stop holds an empty text, with which every answer begins.")
    return tuple(stop)


def _bias(given: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token): options.within(bias, -100, 100, "logit_bias") for token, bias in given.items()}
    except ValueError:
        said = "logit_bias maps token ids, written as whole numbers, to numbers."
        raise wrong("logit_bias", said) from None
