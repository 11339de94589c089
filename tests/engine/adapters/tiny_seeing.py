"""Language models that see, of a few thousand random weights, and what transformers itself makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import AddedToken
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from engine.catalog import ModelSpec, Source
from engine.requests import Task
from tests.engine.adapters.tiny_decoders import EOS, byte_level

SPECIAL = [
    *("<image>", "<fake_token_around_image>", "<global-img>", "<|image_pad|>", "<|vision_start|>"),
    *("<|vision_end|>", "<|video_pad|>", "<img>", "</img>", "<IMG_CONTEXT>"),
    *(f"<row_{row}_col_{col}>" for row in (1, 2, 3) for col in (1, 2, 3)),
]
IDS = {token: 258 + at for at, token in enumerate(SPECIAL)}
TEXT = {
    "vocab_size": 258 + len(SPECIAL),
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,
    "pad_token_id": 256,
    "bos_token_id": None,
    "eos_token_id": 257,
}
VISION = {"num_attention_heads": 2, "num_hidden_layers": 2, "initializer_range": 0.3}
QWEN = {
    "vision_start_token_id": IDS["<|vision_start|>"],
    "vision_end_token_id": IDS["<|vision_end|>"],
    "image_token_id": IDS["<|image_pad|>"],
    "video_token_id": IDS["<|video_pad|>"],
}
MOVING = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
QWEN_VISION = {"patch_size": 8, "spatial_merge_size": 2, "initializer_range": 0.3, "num_heads": 2, "depth": 3}


def template(image: str) -> str:
    return (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}"
        "{% if part.type == 'image' %}" + image + "{% else %}{{ part.text }}{% endif %}"
        "{% endfor %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


@dataclass(frozen=True, slots=True)
class Tiny:
    """How a model of one family is made, and how its place in a template is written."""

    config: Callable[[], transformers.PreTrainedConfig]
    images: Callable[[], Any]
    place: str


def _tiled(config: type, vision: type, text: Any) -> transformers.PreTrainedConfig:
    seen = vision(**VISION, hidden_size=32, intermediate_size=48, image_size=32, patch_size=8)
    return config(
        vision_config=seen.to_dict(),
        text_config=text(**TEXT).to_dict(),
        image_token_id=IDS["<image>"],
        scale_factor=2,
        tie_word_embeddings=False,
        pad_token_id=256,
    )


def _llava() -> transformers.PreTrainedConfig:
    seen = transformers.CLIPVisionConfig(
        **VISION, hidden_size=32, intermediate_size=48, image_size=32, patch_size=8, projection_dim=32
    )
    return transformers.LlavaConfig(
        vision_config=seen, text_config=transformers.LlamaConfig(**TEXT), image_token_index=IDS["<image>"]
    )


def _llava_next() -> transformers.PreTrainedConfig:
    return transformers.LlavaNextConfig(
        vision_config=_llava().vision_config,
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_index=IDS["<image>"],
        image_grid_pinpoints=GRIDS,
    )


def _internvl() -> transformers.PreTrainedConfig:
    seen = transformers.InternVLVisionConfig(
        **VISION, hidden_size=32, intermediate_size=48, image_size=[32, 32], patch_size=[8, 8]
    )
    return transformers.InternVLConfig(
        vision_config=seen, text_config=transformers.Qwen2Config(**TEXT), image_token_id=IDS["<IMG_CONTEXT>"]
    )


def _qwen2() -> transformers.PreTrainedConfig:
    seen = {**QWEN_VISION, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}
    return transformers.Qwen2VLConfig(
        vision_config=seen, text_config={**TEXT, "rope_parameters": MOVING}, **QWEN
    )


def _qwen25() -> transformers.PreTrainedConfig:
    seen = {
        **QWEN_VISION,
        **{"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64},
        **{"window_size": 32, "fullatt_block_indexes": [1]},
    }
    return transformers.Qwen2_5_VLConfig(
        vision_config=seen, text_config={**TEXT, "rope_parameters": MOVING}, **QWEN
    )


def _qwen3() -> transformers.PreTrainedConfig:
    seen = {
        **QWEN_VISION,
        **{"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64},
        **{"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 64},
    }
    text = {**TEXT, "head_dim": 16, "rope_parameters": {**MOVING, "mrope_interleaved": True}}
    return transformers.Qwen3VLConfig(vision_config=seen, text_config=text, **QWEN)


def _qwen_images() -> Any:
    return Qwen2VLImageProcessorPil(patch_size=8, size={"shortest_edge": 256, "longest_edge": 4096})


SIDES = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}
GRIDS = [[32, 64], [64, 32], [64, 64]]
SEEN = "<|vision_start|><|image_pad|><|vision_end|>"
FAMILIES: Mapping[str, Tiny] = {
    "idefics3": Tiny(
        lambda: _tiled(
            transformers.Idefics3Config,
            transformers.models.idefics3.configuration_idefics3.Idefics3VisionConfig,
            transformers.LlamaConfig,
        ),
        lambda: Idefics3ImageProcessorPil(**SIDES),
        "<image>",
    ),
    "smolvlm": Tiny(
        lambda: _tiled(
            transformers.SmolVLMConfig,
            transformers.models.smolvlm.configuration_smolvlm.SmolVLMVisionConfig,
            transformers.LlamaConfig,
        ),
        lambda: SmolVLMImageProcessorPil(**SIDES),
        "<image>",
    ),
    "llava": Tiny(
        _llava,
        lambda: CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        "<image>",
    ),
    "llava_next": Tiny(
        _llava_next,
        lambda: LlavaNextImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, image_grid_pinpoints=GRIDS
        ),
        "<image>",
    ),
    "internvl": Tiny(
        _internvl,
        lambda: GotOcr2ImageProcessorPil(
            size={"height": 32, "width": 32}, crop_to_patches=True, min_patches=1, max_patches=4
        ),
        "<IMG_CONTEXT>",
    ),
    "qwen2_vl": Tiny(_qwen2, _qwen_images, SEEN),
    "qwen2_5_vl": Tiny(_qwen25, _qwen_images, SEEN),
    "qwen3_vl": Tiny(_qwen3, _qwen_images, SEEN),
}


def spec(path: Path, **changes: object) -> ModelSpec:
    made = ModelSpec(
        id="tests/seeing",
        family="vision_lm",
        tasks=(Task.GENERATE,),
        inputs=("text", "image"),
        sources=(Source(directory=str(path)),),
    )
    return made.model_copy(update=changes)


def save(path: Path, name: str) -> Path:
    """A model directory of random weights, the same for every call."""
    tiny = FAMILIES[name]
    torch.manual_seed(7)
    model = transformers.AutoModelForImageTextToText.from_config(tiny.config())
    for weight in model.parameters():
        # what is zero or one in a fresh model would hide mistakes
        weight.data += 0.05 * torch.randn_like(weight)
    model.generation_config.do_sample = False
    model.save_pretrained(path)
    backend = byte_level()
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=EOS)
    tokenizer.chat_template = template(tiny.place)
    tokenizer.save_pretrained(path)
    tiny.images().save_pretrained(path)
    return path


class Reference:
    """What transformers itself answers, one prompt at a time, its images processed by transformers too."""

    def __init__(self, path: Path, name: str) -> None:
        self._model = transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
        self._images = FAMILIES[name].images()
        self._name = name

    def inputs(self, ids: Sequence[int], images: Sequence[Image.Image]) -> dict[str, torch.Tensor]:
        made = {"input_ids": torch.tensor([list(ids)])}
        if images:
            tiled = self._name in ("idefics3", "smolvlm")
            found = self._images(images=[list(images)] if tiled else list(images), return_tensors="np")
            made |= {
                key: torch.from_numpy(np.asarray(value))
                for key, value in found.items()
                if key != "num_patches"
            }
        if self._name.startswith("qwen") and images:
            made["mm_token_type_ids"] = (made["input_ids"] == IDS["<|image_pad|>"]).int()
        return {**made, "attention_mask": torch.ones_like(made["input_ids"])}

    def greedy(self, ids: Sequence[int], images: Sequence[Image.Image], most: int) -> list[int]:
        inputs = self.inputs(ids, images)
        out = self._model.generate(**inputs, do_sample=False, max_new_tokens=most)
        return [int(token) for token in out[0, len(ids) :]]

    def prompt(self, path: Path, text: str, images: Sequence[Image.Image]) -> list[int]:
        """One user turn of SmolVLM's, as the processor of Idefics3 spells it, which needs fewer packages."""
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        parts = [*[{"type": "image"}] * len(images), {"type": "text", "text": text}]
        turn = [{"role": "user", "content": parts}]
        rendered = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        processor = Idefics3Processor(Idefics3ImageProcessorPil(**SIDES), tokenizer, image_seq_len=4)
        return list(processor(images=list(images), text=rendered)["input_ids"][0])
