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


def lora_of(job: Prepared) -> str | None:
    payload = job.payload.document if isinstance(job.payload, MatchJob) else job.payload
    lora: str | None = getattr(payload, "lora", None)
    return lora


class AdaptedModel:
    """A model and its adapters."""

    def __init__(self, model: Model, network: PreTrainedModel, residents: Residents) -> None:
        self._model = model
        self._residents = residents
        self._packed = network.config.model_type in PACKED

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        outputs: dict[int, Output | EngineError] = {}
        for names, places in self._passes(jobs):
            adapters = [name for name in names if name is not None]
            with self._residents.held(adapters) as failed:
                for place in places:
                    if (wrong := failed.get(lora_of(jobs[place]) or "")) is not None:
                        outputs[place] = wrong
                good = [place for place in places if place not in outputs]
                together = everywhere(adapters[0]) if len(names) == 1 and adapters else ()
                with applied(together):
                    made = self._model.run([_bare(jobs[place]) for place in good]) if good else ()
                outputs.update(zip(good, made, strict=True))
        return [outputs[place] for place in range(len(jobs))]

    def tensors(self) -> Mapping[str, Tensor]:
        return _tensors(self._model, self._residents)

    def unload(self) -> None:
        self._model.unload()
        self._residents.clear()

    def _passes(self, jobs: Sequence[Prepared]) -> list[tuple[tuple[str | None, ...], list[int]]]:
        """The adapters of each forward pass, and the places of its jobs."""
        places: dict[str | None, list[int]] = defaultdict(list)
        for place, job in enumerate(jobs):
            places[lora_of(job)].append(place)
        together = self._packed and not any(isinstance(job.payload, Marked) for job in jobs)
        shared = [name for name in places if name is not None and together and self._residents.deep(name)]
        alone = [name for name in places if name is not None and name not in shared]
        groups: list[list[str | None]] = [list(group) for group in self._residents.fitting(shared)]
        if None in places:
            if not groups or not together:
                groups.append([])
            groups[0].append(None)
        groups += [[name] for name in alone]
        return [(tuple(group), [at for name in group for at in places[name]]) for group in groups]


class AdaptedGenerator:
    """A generator and its adapters: what joins without room for its own waits for one to be given back."""

    def __init__(self, model: GenerativeModel, residents: Residents) -> None:
        self._model = model
        self._residents = residents
        self._waiting: dict[str, Prepared] = {}
        self._using: dict[str, str] = {}

    def advance(
        self, joining: Mapping[str, Prepared], leaving: Sequence[str], seconds: float
    ) -> Mapping[str, Progressed]:
        for job in leaving:
            self._forget(job)
        self._waiting |= joining
        ready, failed = self._admitted()
        said = dict(self._model.advance(ready, leaving, seconds))
        for job, progressed in said.items():
            if progressed.done is not None:
                self._forget(job)
        return said | failed | {job: Progressed("", 0) for job in self._waiting}

    def tensors(self) -> Mapping[str, Tensor]:
        return _tensors(self._model, self._residents)

    def unload(self) -> None:
        self._model.unload()
        self._residents.clear()

    def _admitted(self) -> tuple[dict[str, Prepared], dict[str, Progressed]]:
        ready: dict[str, Prepared] = {}
        failed: dict[str, Progressed] = {}
        for job, prepared in self._waiting.items():
            name = lora_of(prepared)
            taken = name is None or self._residents.take(name)
            if isinstance(taken, EngineError):
                failed[job] = Progressed("", 0, taken)
            elif taken:
                ready[job] = prepared
                if name is not None:
                    self._using[job] = name
        self._waiting = {job: p for job, p in self._waiting.items() if job not in ready and job not in failed}
        return ready, failed

    def _forget(self, job: str) -> None:
        self._waiting.pop(job, None)
        if (name := self._using.pop(job, None)) is not None:
            self._residents.give_back([name])


def _bare(job: Prepared) -> Prepared:
    return structs.replace(job, payload=job.payload.payload) if isinstance(job.payload, Marked) else job


def _tensors(model: object, residents: Residents) -> Mapping[str, Tensor]:
    own = cast(Parkable, model).tensors()
    return {**own, **{f"adapters.{name}": tensor for name, tensor in residents.tensors().items()}}
