"""A decoder that answers by quanta: it holds its running sequences and takes a few steps when asked.

A step is one forward pass over one row of tokens: the last token of every sequence that is answering,
and as many prompt tokens of those that joined as time allows (chunked prefill beside decoding, as in
Sarathi-Serve). So nobody's answer waits for somebody's prompt, and no token is padding. Images are
looked at one after the other between steps; a prompt is read up to the first that was not looked at.
Where the tokens of an image see each other in both directions, one step reads all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import cast

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from engine.adapters.family import Prepared, Progressed
from engine.adapters.forward import weights
from engine.adapters.generation import sampling
from engine.adapters.generation.kv import Cache, Segment, Shape, Step
from engine.adapters.generation.pace import Pace
from engine.adapters.generation.sequences import Prompt, Running, share
from engine.adapters.generation.sight import Sight
from engine.adapters.generation.views import View
from engine.adapters.lora.rows import applied, laid
from engine.errors import ResourceExhausted

LEAST_CHUNK = 16
"""Prompt tokens that a step takes even when they are predicted to take too long: reading must end."""


class Decoder:
    """A `GenerativeModel`. One caller at a time: its catalogue entry says `max_slots: 1`.

    After `advance` raised, text of that quantum is lost: name its sequences in `leaving`, or unload.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Tokenizer,
        shape: Shape,
        eos: Collection[int],
        max_chunk: int,
        sight: Sight | None = None,
    ) -> None:
        """`sight`: of a model that sees."""
        self._model: PreTrainedModel | None = model
        self._tokenizer = tokenizer
        self._shape = shape
        self._eos = eos
        self._max_chunk = max_chunk
        self._sight = sight
        self._running: dict[str, Running] = {}
        self._pace = Pace()

    @property
    def _device(self) -> torch.device:
        """Asked each time: a model that was parked may come back to another card."""
        return torch.device("cpu") if self._model is None else self._model.device

    @property
    def kv_bytes(self) -> int:
        """Bytes that the running sequences hold."""
        return sum(running.nbytes for running in self._running.values())

    def advance(
        self, joining: Mapping[str, Prepared], leaving: Sequence[str], seconds: float
    ) -> Mapping[str, Progressed]:
        """One quantum of about `seconds`. A prompt may take several: its sequence then says nothing yet."""
        began = time.perf_counter()
        for job in leaving:
            self._running.pop(job, None)
        refused = self._join(joining)
        everyone = dict(self._running)

        def left() -> float:
            return seconds - (time.perf_counter() - began)

        with torch.inference_mode():
            going_on = self._look(math.inf) | self._step(self._first_rows(left()))
            while going_on:
                going_on = self._look(left()) | self._step(self._next_rows(left()))
        return refused | {job: running.report() for job, running in everyone.items()}

    @property
    def network(self) -> PreTrainedModel:
        """What adapters change. Raises RuntimeError when it was unloaded."""
        if self._model is None:
            raise RuntimeError("This model was unloaded.")
        return self._model

    def tensors(self) -> Mapping[str, torch.Tensor]:
        return {} if self._model is None else weights.tensors(self._model)

    def unload(self) -> None:
        self._running.clear()
        if self._model is None:
            return
        weights.release(self._model)
        self._model = None

    def warm(self) -> None:
        """Touch every weight, learn how long steps take. Raises ValueError if attention is not ours."""
        self._probe(1)
        for rows in (1, LEAST_CHUNK):
            self._pace.observe(rows, self._probe(rows))

    def _probe(self, rows: int) -> float:
        """Seconds of one step of a sequence that is then forgotten."""
        began = time.perf_counter()
        with torch.inference_mode():
            cache = Cache(self._shape, rows, self._device)
            logits, step = self._forward([Segment(cache, rows)], [0] * rows, [rows - 1], [None])
            logits.tolist()  # waits for the device
        if step.written != self._shape.layers:
            raise ValueError(f"{step.written} of {self._shape.layers} layers use our attention")
        return time.perf_counter() - began

    def _join(self, joining: Mapping[str, Prepared]) -> dict[str, Progressed]:
        refused: dict[str, Progressed] = {}
        for job, prepared in joining.items():
            prompt = cast(Prompt, prepared.payload)
            try:
                cache = Cache(self._shape, prompt.most_tokens, self._device)
                view = self._sight.view(prompt) if self._sight else None
            except torch.OutOfMemoryError:
                error = ResourceExhausted("No room for this sequence's keys and values.")
                refused[job] = Progressed("", 0, error.after(5.0))
                continue
            self._running[job] = Running(prompt, cache, self._tokenizer, self._eos, view)
        return refused

    def _look(self, seconds: float) -> bool:
        """At the next image of whoever waits longest, if that is predicted to end in time; whether it was."""
        sight = self._sight
        waiting = (r for r in self._running.values() if r.view and r.view.waiting)
        running = next(waiting, None) if sight else None
        if sight is None or running is None or running.view is None:
            return False
        if not sight.looks(running.view.waiting[0], seconds):
            return False
        try:
            sight.look(running.view)
        except torch.OutOfMemoryError:
            running.fail(ResourceExhausted("No room to look at this image.").after(5.0))
            self._forget_done()
        return True

    def _forget_done(self) -> None:
        self._running = {job: r for job, r in self._running.items() if not r.done}

    def _first_rows(self, seconds: float) -> int:
        """Rows of a quantum's first step, whatever it takes; 0 when nothing runs."""
        return max(self._pace.rows_within(seconds, self._most_rows()), self._least_rows())

    def _next_rows(self, seconds: float) -> int:
        """Rows of a further step that is predicted to end in time; 0 when none is."""
        rows = self._pace.rows_within(seconds, self._most_rows())
        return rows if rows >= self._least_rows() else 0

    def _most_rows(self) -> int:
        return self._decoding() + max(min(self._unread(), self._max_chunk), self._least())

    def _least_rows(self) -> int:
        return self._decoding() + max(min(self._unread(), LEAST_CHUNK, self._max_chunk), self._least())

    def _least(self) -> int:
        """What the prompt that is read next takes in any case; 0 when none can be read."""
        reading = (r for r in self._running.values() if not r.decoding and r.readable)
        return next((running.least for running in reading), 0)

    def _decoding(self) -> int:
        return sum(running.decoding for running in self._running.values())

    def _unread(self) -> int:
        """Prompt tokens that nobody has read yet and that can be read."""
        return sum(running.readable for running in self._running.values() if not running.decoding)

    def _step(self, rows: int) -> bool:
        """One forward pass; whoever has read its prompt to the end chooses a token. False without rows."""
        if not rows:
            return False
        began = time.perf_counter()
        everyone = list(self._running.values())
        counts = share(rows, everyone)
        reading = [(running, count) for running, count in zip(everyone, counts, strict=True) if count]
        ids: list[int] = []
        last: list[int] = []
        choosing: list[Running] = []
        for running, count in reading:
            ids += running.unread[:count]
            if count == len(running.unread):
                choosing.append(running)
                last.append(len(ids) - 1)
        names = [running.lora for running, _ in reading]
        with applied(laid(names, [count for _, count in reading], self._device)):
            segments = [running.segment(count) for running, count in reading]
            logits, step = self._forward(segments, ids, last, [running.view for running, _ in reading])
        chosen = sampling.choose(logits, [running.sampler for running in choosing])
        step.done()
        for running, count in reading:
            running.read(count)
        for running, token, row in zip(choosing, chosen, logits, strict=True):
            running.take(token, row)
        self._forget_done()
        self._pace.observe(len(ids), time.perf_counter() - began)
        return True

    def _forward(
        self,
        segments: Sequence[Segment],
        ids: Sequence[int],
        last: Sequence[int],
        views: Sequence[View | None],
    ) -> tuple[torch.Tensor, Step]:
        """Logits (len(last), vocabulary) of the rows in `last`, and the step, not yet `done`."""
        if self._model is None:
            raise RuntimeError("This model was unloaded.")
        step = Step(segments)
        if self._sight is not None:
            return self._sight.logits(step, ids, last, views), step
        out = self._model(
            input_ids=torch.tensor([ids], device=self._device),
            position_ids=torch.tensor([step.positions()], device=self._device),
            logits_to_keep=torch.tensor(last, dtype=torch.long, device=self._device),
            use_cache=False,
            step=step,
        )
        return out.logits[0], step
