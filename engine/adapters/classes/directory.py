"""A published GLiClass directory: its architecture, and how a text and its labels are read by it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gliclass import GLiClassModelConfig  # type: ignore[import-untyped]

from engine.adapters.forward.weights import BadWeights

LABEL, SEPARATOR = "<<LABEL>>", "<<SEP>>"
MARKERS = (LABEL, SEPARATOR, "<<EXAMPLE>>")
UNI, BI, FUSED = "uni-encoder", "bi-encoder", "bi-encoder-fused"
DECODED, DECODED_TEXT, CACHED = "encoder-decoder", "encoder-decoder-cls", "decoder-kv"
ARCHITECTURES = (UNI, BI, FUSED, DECODED, DECODED_TEXT, CACHED)
LABELS_APART = (BI, FUSED)
PROMPT_APART = (DECODED, DECODED_TEXT)


@dataclass(frozen=True, slots=True)
class Form:
    """What stands around a text, and what is read beside it: each label, or all of them as a prompt."""

    before: str = ""
    after: str = ""
    beside: tuple[str, ...] = ()


class Directory:
    """What a model directory says of itself. Reads no weights."""

    def __init__(self, path: Path) -> None:
        """Raises BadWeights for the forms that do not run here."""
        self.path = path
        self.config = GLiClassModelConfig.from_pretrained(path, local_files_only=True)
        self.architecture = str(self.config.architecture_type)
        other = {
            f"architecture {self.architecture}": self.architecture not in ARCHITECTURES,
            "encoders of images or sound": self.config.multimodal,
            "squeezed layers": self.config.squeeze_layers,
            "another layer than the last": self.config.encoder_layer_id != -1,
        }
        if wrong := [what for what, there in other.items() if there]:
            raise BadWeights(f"{path} is a GLiClass with {wrong[0]}, which does not run here")

    @property
    def encoder(self) -> Any:
        """The configuration of what reads texts."""
        return self.config.encoder_config.get_text_config()

    @property
    def framed(self) -> bool:
        """Whether the tokenizer's special tokens stand around what is read."""
        return self.architecture != CACHED

    def form(self, labels: tuple[str, ...], instruction: str) -> Form:
        """As the library's pipelines write it."""
        named = "".join(f"{LABEL}{label}" for label in labels) + SEPARATOR
        if self.architecture == BI:
            return Form(f"{instruction} " if instruction else "", beside=labels)
        if self.architecture == FUSED:
            marks = (f"{instruction} " if instruction else "") + LABEL * len(labels) + SEPARATOR
            return self._around(marks, labels)
        if self.architecture in PROMPT_APART:
            return Form(beside=(named + instruction,))
        if self.architecture == CACHED:
            listed = "".join(f"{label}{LABEL}" for label in labels)
            return Form(instruction, f"{SEPARATOR}{listed}{SEPARATOR}")
        return self._around(named + instruction)

    def _around(self, prompt: str, beside: tuple[str, ...] = ()) -> Form:
        before, after = (prompt, "") if self.config.prompt_first else ("", prompt)
        return Form(before, after, beside)
