"""What a caller may choose about a request, checked strictly; names like none that is known are ignored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import Enum
from itertools import islice
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, field

from engine.errors import InvalidInput
from engine.requests import (
    EncodeOptions,
    ExtractOptions,
    Item,
    OutputType,
    Overflow,
    ScoreOptions,
    ServiceClass,
)
from web.wire.decoding import convert

DTYPES = ("float32", "float16", "int8", "uint8", "binary", "ubinary")
MAX_LABELS = 1000
ALIKE = 0.6
"""Likeness from which on a field that is refused anyway is taken to mean another."""
NEAR = 0.85
"""Likeness from which on an unknown name is a known one with a slip of the pen."""
MAX_MEANT = 5
"""Fields that a nearest one is looked for; whoever sends more sends something else."""
E = TypeVar("E", bound=Enum)


class Common(Struct):
    """`options` of every task. Those that would change the answer and are not offered are refused."""

    profile: str | None = None
    service_class: str | None = field(name="class", default=None)
    instruction: str | None = None
    overflow_policy: str = Overflow.DEFAULT.value
    lora_id: Annotated[str, Meta(min_length=1)] | None = None
    """An adapter of the model, by the name that its entry gives it."""
    muvera: Any = None
    smve: Any = None
    query_template: str | None = None
    doc_template: str | None = None

    @property
    def overflow(self) -> Overflow:
        return Overflow(one_of(self.overflow_policy, [o.value for o in Overflow], "options.overflow_policy"))


REFUSED = ("muvera", "smve", "query_template", "doc_template")


class EncodeKnown(Common):
    output_types: list[str] | None = None
    is_query: bool = False
    output_dtype: str | None = None
    normalize: bool | None = None
    pooling: str | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None


class ScoreKnown(Common):
    activation: str | None = None


class ExtractKnown(Common):
    threshold: float | None = None


class GenerateKnown(Common):
    raw: bool = False


K = TypeVar("K", bound=Common)
_KINDS = (EncodeKnown, ScoreKnown, ExtractKnown, GenerateKnown)
_ALL = frozenset(name for kind in _KINDS for name in kind.__struct_encode_fields__)
OF_FAMILIES = frozenset({"thresholds"})
"""Options of families whose names are near one of ours."""


def known(options: dict[str, Any], kind: type[K]) -> K:
    """The options that `kind` names, typed. Raises InvalidInput for a name that is one of them misspelt."""
    strange = sorted(options.keys() - _ALL - OF_FAMILIES)
    if hint := meant(strange, kind.__struct_encode_fields__, NEAR):
        raise InvalidInput(f"Unknown options: {', '.join(strange)[:500]}.{hint}")
    found = convert(options, kind, "options")
    if refused := [name for name in REFUSED if getattr(found, name)]:
        raise InvalidInput(f"Not offered here: {', '.join('options.' + name for name in refused)}.")
    return found


def encode(
    options: EncodeKnown, output_types: list[str] | None, instruction: str | None, dtype: str | None
) -> EncodeOptions:
    names = [o.value for o in OutputType]
    asked = output_types or options.output_types or ()
    return EncodeOptions(
        output_types=tuple(OutputType(one_of(each, names, "output_types")) for each in dict.fromkeys(asked)),
        is_query=options.is_query,
        instruction=_first(instruction, options.instruction),
        output_dtype=one_of(dtype or options.output_dtype or "float32", DTYPES, "output_dtype"),
        normalize=options.normalize,
        pooling=options.pooling,
        dimensions=options.dimensions,
        overflow=options.overflow,
        lora=options.lora_id,
    )


def score(options: ScoreKnown, query: Item, instruction: str | None) -> ScoreOptions:
    if options.activation is not None:
        one_of(options.activation, ("raw", "sigmoid"), "options.activation")
    return ScoreOptions(
        query=query,
        instruction=_first(instruction, options.instruction),
        activation=options.activation,
        overflow=options.overflow,
        lora=options.lora_id,
    )


def extract(
    options: dict[str, Any],
    found: ExtractKnown,
    labels: Sequence[str] | None,
    schema: dict[str, Any],
    instruction: str | None,
) -> ExtractOptions:
    """What `ExtractKnown` does not name goes on to the model's family."""
    if labels and len(labels) > MAX_LABELS:
        raise InvalidInput(f"params.labels has {len(labels)} entries; at most {MAX_LABELS} are taken.")
    if found.threshold is not None and not 0 <= found.threshold <= 1:
        raise InvalidInput(f"options.threshold is {found.threshold}; it lies between 0 and 1.")
    mine = {*ExtractKnown.__struct_encode_fields__}
    return ExtractOptions(
        labels=tuple(labels or ()),
        threshold=found.threshold,
        output_schema=schema or None,
        instruction=_first(instruction, found.instruction),
        overflow=found.overflow,
        extra={name: value for name, value in options.items() if name not in mine},
        lora=found.lora_id,
    )


def service_class(name: str | None, where: str) -> ServiceClass | None:
    """The class that `name` means; None when nothing was said."""
    if name is None:
        return None
    return ServiceClass[one_of(name.lower(), [c.name.lower() for c in ServiceClass], where).upper()]


def one_of(value: str, allowed: Iterable[str], where: str) -> str:
    """`value`, when it is allowed. Raises InvalidInput that lists what is."""
    if value not in allowed:
        raise InvalidInput(f"{where} is {value[:100]!r}; it is one of {', '.join(allowed)}.")
    return value


def meant(strange: Iterable[str], known: Iterable[str], least: float = ALIKE) -> str:
    """Which known field each strange one may stand for, as a sentence; nothing when none is so like it."""
    near = {name: get_close_matches(name[:100], known, 1, least) for name in islice(strange, MAX_MEANT)}
    pairs = [f"{found[0]} for {name}" for name, found in near.items() if found]
    return f" Did you mean {', '.join(pairs)}?" if pairs else ""


def within(value: float, least: float, most: float, where: str) -> float:
    """`value`, when it lies between the two, ends included."""
    if not (math.isfinite(value) and least <= value <= most):
        raise InvalidInput(f"{where} is {value}; it lies between {least:g} and {most:g}.")
    return value


def _first(*values: str | None) -> str | None:
    return next((value for value in values if value is not None), None)
