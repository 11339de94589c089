"""Speech into text by Whisper and its like, with the times of each sentence; also into English text.

Recordings beyond 30 s are read window by window, each from where the last whole sentence before it ended,
as transformers does it. Words are chosen greedily unless a temperature is asked for.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, WhisperForConditionalGeneration

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.preparing.audio_jobs import SpeechJob, SpeechPreparer, Tongue
from engine.catalog import ModelSpec
from engine.errors import EngineError
from engine.requests import Extracted, Output, Task

BASE_BYTES = 32 << 20
"""What a pass takes whatever its size: GEMM buffers and small change."""


class SpeechRecognizer:
    """Weights of a Whisper. One batch at a time: transformers' generation keeps state on the model."""

    def __init__(self, model: Any, tokenizer: Tokenizer, tongue: Tongue) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._tongue = tongue
        self._codes = {token: code for code, token in tongue.codes.items()}
        self._text_ends = int(model.generation_config.no_timestamps_token_id)
        self._window = 2 * int(model.config.max_source_positions)
        self._one = threading.Lock()

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        """Jobs of one kind make one pass: task, prompt, temperature, and whether one window holds them."""
        kinds: dict[Any, list[int]] = defaultdict(list)
        payloads = [cast(SpeechJob, job.payload) for job in jobs]
        for place, job in enumerate(payloads):
            long = job.features.shape[1] > self._window
            kinds[job.task, job.prompt, job.temperature, long].append(place)
        outputs: dict[int, Output] = {}
        with self._one, torch.inference_mode():
            for places in kinds.values():
                outputs.update(zip(places, self._heard([payloads[place] for place in places]), strict=True))
        return [outputs[place] for place in range(len(jobs))]

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _heard(self, jobs: Sequence[SpeechJob]) -> list[Extracted]:
        first, device, dtype = jobs[0], self._model.device, self._model.dtype
        frames = [job.features.shape[1] for job in jobs]
        padded = np.zeros((len(jobs), len(first.features), max(frames)), np.float32)
        for row, job in enumerate(jobs):
            padded[row, :, : frames[row]] = job.features
        features = torch.from_numpy(padded).to(device, dtype)
        languages = self._languages(jobs, features)
        spoken = {"language": languages, "task": first.task} if self._tongue.codes else {}
        sampled = {"temperature": first.temperature} if first.temperature else {"do_sample": False}
        made = self._model.generate(
            features,
            attention_mask=(torch.arange(max(frames))[None] < torch.tensor(frames)[:, None])
            .long()
            .to(device),
            return_timestamps=True,
            return_segments=True,
            prompt_ids=torch.tensor(first.prompt, device=device) if first.prompt else None,
            **spoken,
            **sampled,
        )
        return [
            self._answer(job, segments, language)
            for job, segments, language in zip(jobs, made["segments"], languages, strict=True)
        ]

    def _languages(self, jobs: Sequence[SpeechJob], features: Tensor) -> list[str]:
        """A code each; those that were not said are heard in the first window."""
        unsaid = [row for row, job in enumerate(jobs) if job.language is None]
        if not unsaid:
            return [job.language or "en" for job in jobs]
        heard = self._model.detect_language(features[unsaid, :, : self._window])
        found = dict(zip(unsaid, heard.tolist(), strict=True))
        return [job.language or self._codes[found[row]] for row, job in enumerate(jobs)]

    def _answer(self, job: SpeechJob, segments: Sequence[Mapping[str, Any]], language: str) -> Extracted:
        told: list[dict[str, Any]] = []
        for segment in segments:
            ids = [int(token) for token in segment["tokens"] if token < self._text_ends]
            if not ids:
                continue
            text = self._tokenizer.decode(ids, skip_special_tokens=True)
            begin, end = (min(float(segment[key]), job.seconds) for key in ("start", "end"))
            told.append(
                {"id": len(told), "start": round(begin, 2), "end": round(end, 2), "text": text, "tokens": ids}
            )
        return Extracted(
            data={
                "text": "".join(str(each["text"]) for each in told).strip(),
                "language": language,
                "task": job.task,
                "duration": round(job.seconds, 3),
                "segments": told,
            }
        )


class SpeechRecognizerFamily:
    """Whisper models of the transformers library."""

    cost_unit: ClassVar[str] = "audio_ms"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        """A window's states while it is read, its keys and values for the decoder, and the decoder's own."""
        config = weights.model_config(path)
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        width, layers = int(config["d_model"]), int(config["decoder_layers"])
        states = int(config["max_source_positions"])
        reading = states * (4 * width + max(int(config["encoder_ffn_dim"]) * 2, 7 * width))
        scores = states * states * int(config["encoder_attention_heads"])
        kept = 2 * layers * width * (states + int(config["max_target_positions"]))
        words = 4 * int(config["vocab_size"])
        window = (reading + scores + kept) * dtype.itemsize + words * 4
        milliseconds = 20 * states
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, window / milliseconds)

    def preparer(self, spec: ModelSpec, path: Path) -> SpeechPreparer:
        return SpeechPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> SpeechRecognizer:
        dtype = weights.dtype_on(device, spec.dtype, path)
        model = _Whole.load(path, device, dtype)
        return SpeechRecognizer(model, Tokenizer.from_file(str(path / "tokenizer.json")), Tongue.of(path))


class _Whole:
    """`weights.load` asks a class for a model of a configuration; Whisper's has that under another name."""

    @staticmethod
    def from_config(config: Any, **_: Any) -> PreTrainedModel:
        return WhisperForConditionalGeneration(config)

    @classmethod
    def load(cls, path: Path, device: str, dtype: torch.dtype) -> Any:
        model = cast(Any, weights.load(cls, path, device, dtype))
        model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
        return model


FAMILY = SpeechRecognizerFamily()
