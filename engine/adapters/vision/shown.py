"""What a network that looks at pages is shown: questions and images, as its own processor makes them.

ColPali and ColQwen2 (arXiv 2407.01449), ColModernVBERT (arXiv 2510.01149).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from transformers import AutoConfig, AutoTokenizer
from transformers.models.colmodernvbert.processing_colmodernvbert import ColModernVBertProcessor
from transformers.models.colpali.processing_colpali import ColPaliProcessor
from transformers.models.colqwen2.processing_colqwen2 import ColQwen2Processor
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from engine.adapters.forward import weights
from engine.adapters.forward.packed import Ids
from engine.adapters.vision.processors import Processor, Seen, reference_of
from engine.errors import InvalidInput

_IMAGES: Mapping[str, Any] = {"colmodernvbert": Idefics3ImageProcessorPil}
"""By `model_type`, where transformers hides the class since another of its family needs torchvision."""
PROCESSORS: Mapping[str, Any] = {
    "colmodernvbert": ColModernVBertProcessor,
    "colpali": ColPaliProcessor,
    "colqwen2": ColQwen2Processor,
}
"""By `model_type`."""
_SETTINGS = ("image_seq_len", "query_prefix", "visual_prompt_prefix")


class Shown:
    """What the network is given, as the directory's own processor makes it. Threads may share it."""

    def __init__(self, path: Path) -> None:
        """Raises BadWeights for a directory that is none of PROCESSORS."""
        config = configuration(path)
        images = reference_of(path, _IMAGES.get(config.model_type))
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        self._processor = PROCESSORS[config.model_type](images, tokenizer, **_settings(path))
        self.patch_pixels = int(config.vlm_config.vision_config.patch_size) ** 2
        self.around = len(self.question(""))  # and the tokenizer is set up before threads share it
        self.pictures = Processor(self.page, self._pixels, images)

    def question(self, text: str) -> Ids:
        made = self._processor.process_queries([text], return_tensors="np")
        return np.asarray(made["input_ids"][0], np.int32)

    def page(self, image: Image.Image) -> Seen:
        made = self._processor.process_images([image])
        return {name: values[0].numpy() for name, values in made.items() if name != "labels"}

    def _pixels(self, width: int, height: int) -> int:
        """Raises InvalidInput for a shape that the processor refuses."""
        images = self._processor.image_processor
        if tile := getattr(images, "max_image_size", None):
            tiles, *_ = images.get_number_of_image_patches(height, width, {})
            return max(1, int(tiles)) * int(tile["longest_edge"]) ** 2
        if not hasattr(images, "merge_size"):
            return int(images.size["height"]) * int(images.size["width"])
        try:
            patches = images.get_number_of_image_patches(height, width, {})
        except ValueError as error:
            raise InvalidInput(f"an image of {width} x {height} pixels: {str(error)[:200]}") from error
        return int(patches) * self.patch_pixels


def _settings(path: Path) -> dict[str, Any]:
    """What stands before a question and around a page, and how many tokens a tile of it has, where the
    directory says other than transformers."""
    file = path / "processor_config.json"
    stored = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return {name: stored[name] for name in _SETTINGS if stored.get(name)}


def configuration(path: Path) -> Any:
    """Raises BadWeights for a directory that is none of PROCESSORS."""
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    if config.model_type not in PROCESSORS:
        raise weights.BadWeights(f"{path} is a {config.model_type}; {', '.join(PROCESSORS)} are served")
    return config
