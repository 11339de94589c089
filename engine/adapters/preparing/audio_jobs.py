"""Recordings and what is asked of them, as jobs: the half of speech recognition that needs no weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import GenerationConfig, WhisperFeatureExtractor
from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

from engine.adapters.family import Prepared
from engine.adapters.preparing import audio
from engine.adapters.preparing.kinds import extract_options
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import ExtractOptions, Item, Options, Task, Usage

LONGEST_MS = 30 * 60 * 1000
"""Of one recording, where the entry has no `max_item_cost`: it holds its slot to its end."""
KNOWN = ("language", "prompt", "task", "temperature")
TASKS = ("transcribe", "translate")


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """`features` is (mel bands, frames); those of a recording of 30 s or less are padded to 30 s."""

    features: NDArray[np.float32]
    seconds: float
    language: str | None
    """A code as `en`; None: to be heard."""
    task: str
    prompt: tuple[int, ...]
    """Text before the first words, with its mark; or nothing."""
    temperature: float


@dataclass(frozen=True, slots=True)
class Tongue:
    """What a model's generation_config.json says of languages and marks."""

    codes: Mapping[str, int]
    """Code of each language, and the token that stands for it; none where there is only English."""
    prompt_mark: int | None
    longest_prompt: int

    @classmethod
    def of(cls, path: Path) -> Tongue:
        config = cast(Any, GenerationConfig.from_pretrained(path, local_files_only=True))
        codes = getattr(config, "lang_to_id", None) if getattr(config, "is_multilingual", False) else None
        return cls(
            {mark.strip("<|>"): token for mark, token in (codes or {}).items()},
            getattr(config, "prev_sot_token_id", None),
            int(config.max_length or 448) // 2 - 1,
        )


class SpeechPreparer:
    """Decodes and makes spectrograms."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._extractor = cast(Any, WhisperFeatureExtractor.from_pretrained(path, local_files_only=True))
        self._tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        self._tongue = Tongue.of(path)
        self._window_ms = 1000 * int(self._extractor.chunk_length)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        asked = extract_options(task, options)
        if asked.labels:
            raise InvalidInput("This model writes down speech; it takes no labels.")
        language, kind, prompt, temperature = self._asked(asked)
        found: list[Prepared | EngineError] = []
        for index, item in enumerate(items):
            try:
                heard = audio.samples(item, self._spec.limits.max_item_cost or LONGEST_MS)
            except EngineError as error:
                found.append(error.at(index))
                continue
            job = SpeechJob(
                self._features(heard), len(heard) / audio.RATE, language, kind, prompt, temperature
            )
            found.append(self._prepared(job))
        return found

    def _prepared(self, job: SpeechJob) -> Prepared:
        """What a model reads is whole windows: a short recording costs as much as a full one."""
        heard = max(1, math.ceil(job.seconds * 1000))
        cost = math.ceil(heard / self._window_ms) * self._window_ms
        return Prepared(cost, job, job.features.nbytes, Usage(audio_ms=heard))

    def _features(self, heard: audio.Samples) -> NDArray[np.float32]:
        whole = self._extractor.n_samples
        made = self._extractor(
            heard,
            sampling_rate=audio.RATE,
            truncation=False,
            padding="max_length" if len(heard) <= whole else "longest",
            return_tensors="np",
        )
        return cast(NDArray[np.float32], made["input_features"][0])

    def _asked(self, options: ExtractOptions) -> tuple[str | None, str, tuple[int, ...], float]:
        """Language, task, prompt and temperature. Raises InvalidInput."""
        extra = options.extra
        if strange := sorted(set(extra) - {*KNOWN}):
            known = ", ".join(KNOWN)
            raise InvalidInput(f"This model knows no option {strange[0][:100]!r}; it knows: {known}.")
        task, temperature = extra.get("task", TASKS[0]), extra.get("temperature", 0)
        if task not in TASKS or (task == "translate" and not self._tongue.codes):
            there = TASKS if self._tongue.codes else TASKS[:1]
            raise InvalidInput(
                f"{self._spec.id} has no task {str(task)[:100]!r}; it has: {', '.join(there)}."
            )
        if isinstance(temperature, bool) or not isinstance(temperature, int | float):
            raise InvalidInput("A temperature is a number between 0 and 1.")
        if not 0 <= temperature <= 1:
            raise InvalidInput(f"A temperature is between 0 and 1, not {temperature}.")
        return self._language(extra.get("language")), task, self._prompt(extra.get("prompt")), temperature

    def _language(self, said: object) -> str | None:
        if said is None or said == "":
            return None if self._tongue.codes else "en"
        name = said.lower() if isinstance(said, str) else ""
        code = TO_LANGUAGE_CODE.get(name, name)
        if code not in (self._tongue.codes or ("en",)):
            there = ", ".join(sorted(self._tongue.codes)) or "en"
            raise InvalidInput(f"{self._spec.id} knows no language {str(said)[:100]!r}; it knows: {there}.")
        return code

    def _prompt(self, said: object) -> tuple[int, ...]:
        """The end of it, where it is longer than the model takes, as Whisper itself does."""
        if said is None or said == "":
            return ()
        if not isinstance(said, str):
            raise InvalidInput("A prompt is a text.")
        if self._tongue.prompt_mark is None:
            raise InvalidInput(f"{self._spec.id} takes no prompt.")
        ids = self._tokenizer.encode(" " + said.strip(), add_special_tokens=False).ids
        return (self._tongue.prompt_mark, *ids[-self._tongue.longest_prompt :])
