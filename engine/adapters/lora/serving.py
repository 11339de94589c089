"""Batches whose jobs differ in their adapter: one pass where rows can be told apart, else one an adapter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from msgspec import structs
from torch import Tensor
from transformers import PreTrainedModel

from engine.adapters.cross_encoder import ScoreJob
from engine.adapters.family import GenerativeModel, Model, Parkable, Prepared, Progressed
from engine.adapters.forward.packed import PACKED
from engine.adapters.generation.sequences import Prompt
from engine.adapters.lora.residents import Residents
from engine.adapters.lora.rows import applied, everywhere
from engine.adapters.preparing.text_jobs import EncodeJob, MatchJob
from engine.adapters.token_classifier import TagJob
from engine.adapters.yes_no_reranker import YesNoJob
from engine.errors import EngineError
from engine.requests import Output


@dataclass(frozen=True, slots=True)
class Marked:
    """An input of a family that does not tell its encoder about adapters."""

    payload: Any
    lora: str


def marked(found: Sequence[Prepared | EngineError], lora: str) -> list[Prepared | EngineError]:
    """The same inputs, to be read with the adapter. Documents of one request go on sharing their query."""
    queries: dict[int, EncodeJob] = {}

    def payload(of: Any) -> Any:
        match of:
            case EncodeJob() | ScoreJob() | Prompt() | TagJob() | YesNoJob():
                return replace(of, lora=lora)
            case MatchJob():
                query = queries.setdefault(id(of.query), replace(of.query, lora=lora))
                return replace(of, query=query, document=replace(of.document, lora=lora))
            case _:
                return Marked(of, lora)

    return [
        each if isinstance(each, EngineError) else structs.replace(each, payload=payload(each.payload))
        for each in found
    ]


def loras_of(job: Prepared) -> set[str]:
    """All that it is read with: a query may have another than its document."""
    parts = (job.payload.query, job.payload.document) if isinstance(job.payload, MatchJob) else (job.payload,)
    return {lora for part in parts if (lora := getattr(part, "lora", None)) is not None}


def named(found: Sequence[Prepared | EngineError]) -> list[Prepared | EngineError]:
    """The same inputs, which say what they are read with."""
    return [
        each if isinstance(each, EngineError) else structs.replace(each, loras=tuple(sorted(loras_of(each))))
        for each in found
    ]


def lora_of(job: Prepared) -> str | None:
    payload = job.payload.document if isinstance(job.payload, MatchJob) else job.payload
    lora: str | None = getattr(payload, "lora", None)
    return lora


class _Laid:
    """A model and the adapters that are laid over it now."""

    def __init__(self, model: Model | GenerativeModel, residents: Residents) -> None:
        self._own = model
        self._residents = residents

    def bring(self, name: str) -> None:
        self._residents.bring(name)

    def let_go(self, name: str) -> None:
        self._residents.let_go(name)

    def tensors(self) -> Mapping[str, Tensor]:
        own = cast(Parkable, self._own).tensors()
        return {**own, **{f"adapters.{name}": tensor for name, tensor in self._residents.tensors().items()}}

    def unload(self) -> None:
        self._own.unload()
        self._residents.clear()


class AdaptedModel(_Laid):
    def __init__(self, model: Model, network: PreTrainedModel, residents: Residents) -> None:
        super().__init__(model, residents)
        self._model = model
        self._packed = network.config.model_type in PACKED

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        outputs: dict[int, Output | EngineError] = {}
        for names, places in self._passes(jobs):
            together = everywhere(names[0]) if len(names) == 1 else ()
            with applied(together):
                made = self._model.run([_bare(jobs[place]) for place in places])
            outputs.update(zip(places, made, strict=True))
        return [outputs[place] for place in range(len(jobs))]

    def _passes(self, jobs: Sequence[Prepared]) -> list[tuple[tuple[str | None, ...], list[int]]]:
        """The adapters of each forward pass, and the places of its jobs: one for all, where the rows of a
        pass can be told apart, beside one for each adapter of which they cannot."""
        places: dict[str | None, list[int]] = defaultdict(list)
        for place, job in enumerate(jobs):
            places[lora_of(job)].append(place)
        told_apart = self._packed and not any(isinstance(job.payload, Marked) for job in jobs)
        deep = {name: self._residents.deep(name) for job in jobs for name in loras_of(job)}
        shared = [name for name in places if told_apart and (name is None or deep[name])]
        groups = [tuple(shared), *[(name,) for name in places if name not in shared]]
        return [(group, [at for name in group for at in places[name]]) for group in groups if group]


class AdaptedGenerator(_Laid):
    def __init__(self, model: GenerativeModel, residents: Residents) -> None:
        super().__init__(model, residents)
        self._model = model

    def advance(
        self, joining: Mapping[str, Prepared], leaving: Sequence[str], seconds: float
    ) -> Mapping[str, Progressed]:
        for prepared in joining.values():
            if (name := lora_of(prepared)) is not None:
                assert self._residents.deep(name), "one of another kind is not brought"
        return self._model.advance(joining, leaving, seconds)


def _bare(job: Prepared) -> Prepared:
    return structs.replace(job, payload=job.payload.payload) if isinstance(job.payload, Marked) else job
