"""Language models that see: prompts with images in them, answered in turns as other prompts are.

SmolVLM and Idefics3, Qwen 2-VL, 2.5-VL and 3-VL, LLaVA, LLaVA-NeXT and OneVision, InternVL, Gemma 3,
PaliGemma, Pixtral and Mistral 3, LightOnOCR, PaddleOCR-VL and GLM-OCR. The vision tower and the rules of
positions are transformers' own; the words go through the same decoder as those of `causal_lm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForImageTextToText

from engine.adapters import causal_lm
from engine.adapters.causal_lm import Prompts, chunk_of, context_of, eos_of, refuse, shape_of
from engine.adapters.family import Footprint
from engine.adapters.forward import linear, weights
from engine.adapters.generation import kv
from engine.adapters.generation.chat import Chat
from engine.adapters.generation.decoder import Decoder
from engine.adapters.generation.eyes import Bounds, Eyes
from engine.adapters.generation.kinds import Block, Kind, kind_of
from engine.adapters.generation.sight import Sight
from engine.adapters.generation.tower import Tower
from engine.adapters.generation.vocabulary import Vocabulary
from engine.adapters.vision.processors import reference_of
from engine.catalog import ModelSpec
from engine.requests import Task

MAX_IMAGES = 16
"""In a prompt, where the entry's options say nothing else."""


class VisionLM:
    """Options: `max_images` of a prompt; `max_pixels`, to which larger images are made smaller, where a model
    takes them in any shape."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.GENERATE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        """As `causal_lm`'s, with what the largest image takes on its way through the tower."""
        context = context_of(spec, causal_lm.text_config_of(spec, path))
        tower, kind = _tower(spec, path)
        words = causal_lm.FAMILY.footprint(_reading(spec, tower, kind, context), path)
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        return Footprint(
            weights_bytes=words.weights_bytes,
            workspace_base=words.workspace_base + tower.workspace_bytes(dtype.itemsize, context),
            kv_bytes_per_token=words.kv_bytes_per_token,
        )

    def preparer(self, spec: ModelSpec, path: Path) -> Prompts:
        tower, kind = _tower(spec, path)
        config = causal_lm.text_config_of(spec, path)
        context = context_of(spec, config)
        chat = Chat(path, context, spec.trust_remote_code, kind.place, kind.template)
        token = chat.backend.token_to_id(kind.token)
        if token is None:
            raise weights.BadWeights(f"{path}: its tokenizer does not know {kind.token}")
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        feature = _levels(tower.config) * config.hidden_size * dtype.itemsize
        bounds = Bounds(
            int(spec.options.get("max_images", MAX_IMAGES)),
            context,
            feature / shape_of(config, dtype).bytes_per_token,
        )
        size = int(config.vocab_size)
        vocabulary = Vocabulary(chat.backend, size, eos_of(path, config))
        return Prompts(chat, context, vocabulary, size, Eyes(tower, kind, token, bounds))

    def load(self, spec: ModelSpec, path: Path, device: str) -> Decoder:
        tower, kind = _tower(spec, path)
        config = causal_lm.text_config_of(spec, path)
        refuse(config, context_of(spec, config))
        if spec.loras:
            raise weights.BadWeights("models that see are served without adapters; leave out the loras")
        dtype = weights.dtype_on(device, spec.dtype, path)
        model = weights.load(
            AutoModelForImageTextToText, path, device, dtype, trust_remote_code=spec.trust_remote_code
        )
        kv.register()
        model.get_decoder().set_attn_implementation(kv.NAME)
        linear.pack(model)
        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        token = _token(tokenizer, kind, path)
        sight = Sight(model, kind, token, tower.images, _levels(tower.config))
        decoder = Decoder(
            model, tokenizer, shape_of(config, dtype), eos_of(path, config), chunk_of(spec), sight
        )
        decoder.warm()
        return decoder


def _tower(spec: ModelSpec, path: Path) -> tuple[Tower, Kind]:
    config = AutoConfig.from_pretrained(path, local_files_only=True).to_dict()
    kind = kind_of(config)
    tower = Tower(config, reference_of(path, kind.images))
    if (most := spec.options.get("max_pixels")) is not None:
        tower.shrink(int(most))
    return tower, kind


def _reading(spec: ModelSpec, tower: Tower, kind: Kind, context: int) -> ModelSpec:
    """With room for the most prompt tokens that a step may read."""
    at_once = {
        Block.NONE: 0,
        Block.IMAGE: int(tower.config.get("mm_tokens_per_image", 0)),
        Block.PROMPT: context,
    }
    most = max(chunk_of(spec), at_once[kind.block])
    return spec.model_copy(update={"limits": spec.limits.model_copy(update={"max_batch_cost": most})})


def _token(tokenizer: Tokenizer, kind: Kind, path: Path) -> int:
    """The id of its image token."""
    found: int | None = tokenizer.token_to_id(kind.token)
    if found is None:
        raise weights.BadWeights(f"{path}: its tokenizer does not know {kind.token}")
    return found


def _levels(config: Mapping[str, Any]) -> int:
    """How many layers are given features of images."""
    return 1 + len(config["vision_config"].get("deepstack_visual_indexes") or ())


FAMILY = VisionLM()
