"""The weights of a model that looks at an image and writes an answer, driven by quanta."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import (
    AutoModelForImageTextToText,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)

from engine.adapters.family import Prepared, Progressed
from engine.adapters.forward import weights
from engine.adapters.vision.pictures import Forward, Look, see
from engine.adapters.vision.processors import Processor, Seen
from engine.adapters.vision.sitting import Pause, Sitting
from engine.adapters.vision.writing import Reading, WriteJob, defaults_of
from engine.catalog import ModelSpec
from engine.devices.failures import cuda_failed, out_of_memory
from engine.errors import EngineError, InferenceFailed, NotFinite, ResourceExhausted
from engine.requests import Output

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Writing:
    """One job that is under way."""

    prepared: Prepared
    tokens: int = 0
    """Written since they were last told of."""
    done: Output | EngineError | None = None

    @property
    def job(self) -> WriteJob:
        return cast(WriteJob, self.prepared.payload)


class Writer:
    """A `GenerativeModel`, though what it gives is extracted; `run` does the same at one go.

    Who joins together sits together: images of one shape and prompts of one length are written side by side.
    Sittings go one after the other, and any of them may stop after each token.
    """

    def __init__(self, model: PreTrainedModel, processor: Processor, reading: Reading, path: Path) -> None:
        self._model: Any = model
        if defaults_of(path):
            self._model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
        # of the two limits only that of each request counts
        self._model.generation_config.max_length = None
        self._early = self._model.generation_config.early_stopping
        self._processor = processor
        self._reading = reading
        self._under_way: dict[str, Writing] = {}
        self._sittings: deque[tuple[Sitting, tuple[str, ...]]] = deque()

    def advance(
        self, joining: Mapping[str, Prepared], leaving: Sequence[str], seconds: float
    ) -> Mapping[str, Progressed]:
        """One quantum of about `seconds`, but one token, or one look at an image, at least."""
        ends = time.perf_counter() + seconds
        for job in leaving:
            self._under_way.pop(job, None)
        self._clear()
        self._under_way.update({job: Writing(prepared) for job, prepared in joining.items()})
        if joining:
            self._seat(tuple(joining))
        going_on = bool(self._sittings)
        while going_on:
            self._go(ends)
            going_on = bool(self._sittings) and time.perf_counter() < ends
        return self._told()

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        """Without a stop, for whoever measures."""
        writings = {str(place): Writing(job) for place, job in enumerate(jobs)}
        self._write(writings, writings, lambda: None)
        return [cast(Output | EngineError, writing.done) for writing in writings.values()]

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        while self._sittings:
            self._sittings.popleft()[0].give_up()
        self._under_way.clear()
        weights.release(self._model)

    def _seat(self, jobs: tuple[str, ...]) -> None:
        writings = {job: self._under_way[job] for job in jobs}
        work = partial(self._write, writings, self._under_way)
        self._sittings.append((Sitting(work), jobs))

    def _clear(self) -> None:
        """Sittings that nobody waits for end here, and let go of what they hold."""
        for sitting, jobs in tuple(self._sittings):
            if not any(job in self._under_way for job in jobs):
                self._sittings.remove((sitting, jobs))
                sitting.give_up()

    def _go(self, ends: float) -> None:
        """On with the first sitting. One that fails is tried again job by job: who is wrong fails alone."""
        sitting, jobs = self._sittings[0]
        try:
            if sitting.go(ends):
                self._sittings.popleft()
            return
        except Exception as error:
            self._sittings.popleft()
            if cuda_failed(error):
                raise
            left = [job for job in jobs if job in self._under_way and self._under_way[job].done is None]
            if len(left) == 1:
                self._under_way[left[0]].done = _explained(error)
                return
        for job in left:
            self._seat((job,))

    def _told(self) -> dict[str, Progressed]:
        told = {job: Progressed("", w.tokens, w.done) for job, w in self._under_way.items()}
        for job, writing in tuple(self._under_way.items()):
            writing.tokens = 0
            if writing.done is not None:
                del self._under_way[job]  # in place: sittings look into it
        return told

    def _write(self, writings: Mapping[str, Writing], wanted: Collection[str], pause: Pause) -> None:
        """All of `writings`, as long as they are among the `wanted`."""
        jobs, names = list(writings.values()), list(writings)

        def processed(image: Any) -> Seen:
            pause()
            return self._processor(image)

        def write(looks: Sequence[Look], inputs: Mapping[str, Tensor]) -> list[Output | EngineError]:
            places = [look.place for look in looks]
            group = Group([jobs[at] for at in places], [names[at] for at in places], wanted, pause)
            answers: list[Output | EngineError] = [_unwanted() for _ in looks]
            if group.wanted:
                answers = self._answers(group, looks, inputs)
            for at, answer in zip(places, answers, strict=True):
                jobs[at].done = answer
            return answers

        with torch.inference_mode():
            forward: Forward[Output] = write
            done = see(
                processed,
                self._model,
                [writing.job.picture for writing in jobs],
                forward,
                lambda place: (len(jobs[place].job.prompt), jobs[place].job.pace),
            )
        for place, answer in enumerate(done):
            jobs[place].done = cast(Output | EngineError, answer)

    def _answers(
        self, group: Group, looks: Sequence[Look], inputs: Mapping[str, Tensor]
    ) -> list[Output | EngineError]:
        chosen = [writing.job for writing in group.writings]
        ids = torch.tensor([job.prompt for job in chosen], device=self._model.device)
        pace, lost = chosen[0].pace, Lost(len(chosen), self._model.device)
        written = self._model.generate(
            pixel_values=inputs["pixel_values"],
            **self._reading.prompts(ids),
            **self._reading.ends,
            max_new_tokens=pace.max_new_tokens,
            num_beams=pace.beams,
            early_stopping=self._early if pace.beams > 1 else False,
            do_sample=False,
            use_cache=True,
            logits_processor=LogitsProcessorList([lost]),
            stopping_criteria=StoppingCriteriaList([group]),
        )
        return [
            NotFinite() if gone else self._reading.answer(row.tolist(), job, look)
            for row, gone, job, look in zip(written, lost.rows.tolist(), chosen, looks, strict=True)
        ]


class Group(StoppingCriteria):
    """Answers that are written side by side. After each token it pauses, and ends what nobody wants."""

    def __init__(
        self, writings: Sequence[Writing], names: Sequence[str], wanted: Collection[str], pause: Pause
    ) -> None:
        self.writings = writings
        self._names = names
        self._wanted = wanted
        self._pause = pause

    @property
    def wanted(self) -> bool:
        return any(name in self._wanted for name in self._names)

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Any:
        for writing in self.writings:
            writing.tokens += 1
        self._pause()
        return torch.full((len(input_ids),), not self.wanted, dtype=torch.bool, device=input_ids.device)


class Lost(LogitsProcessor):
    """Which answers had a score that is NaN; an argmax gives a token for it all the same."""

    def __init__(self, answers: int, device: torch.device) -> None:
        self.rows = torch.zeros(answers, dtype=torch.bool, device=device)

    def __call__(self, input_ids: Tensor, scores: Any) -> Any:
        self.rows |= scores.isnan().view(len(self.rows), -1).any(-1)  # the beams of one lie together
        return scores


def loaded(spec: ModelSpec, path: Path, device: str, processor: Processor, reading: Reading) -> Writer:
    dtype = weights.dtype_on(device, spec.dtype, path)
    return Writer(weights.load(AutoModelForImageTextToText, path, device, dtype), processor, reading, path)


def _unwanted() -> EngineError:
    return InferenceFailed("Nobody waits for this answer any more.")


def _explained(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    if out_of_memory(error):
        return ResourceExhausted("Memory ran out on this image alone. Send a smaller one.").after(5.0)
    log.error("an image failed in the model", exc_info=error)
    return InferenceFailed(f"The model failed on this image: {type(error).__name__}.")
