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
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from engine.catalog import ModelSpec, Source
from engine.requests import Task
from tests.engine.adapters.tiny_decoders import EOS, START, byte_level

SPECIAL = [
    *("<image>", "<fake_token_around_image>", "<global-img>", "<|image_pad|>", "<|vision_start|>"),
    *("<|vision_end|>", "<|video_pad|>", "<img>", "</img>", "<IMG_CONTEXT>"),
    *(f"<row_{row}_col_{col}>" for row in (1, 2, 3) for col in (1, 2, 3)),
    *("<image_soft_token>", "<start_of_image>", "<end_of_image>", "[IMG]", "[IMG_BREAK]", "[IMG_END]"),
    *("<|image|>", "<|video|>", "<|IMAGE_PLACEHOLDER|>"),
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
    place: str | None
    """None: its tokenizer has no template."""


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


def _siglip(**changes: Any) -> transformers.SiglipVisionConfig:
    size = {"hidden_size": 32, "intermediate_size": 48, "image_size": 32, "patch_size": 8}
    return transformers.SiglipVisionConfig(**{**VISION, **size, "vision_use_head": False, **changes})


def _granite_vision() -> transformers.PreTrainedConfig:
    """As Granite Vision 3 is: features of several layers of SigLIP, none of them of a class."""
    return transformers.LlavaNextConfig(
        vision_config=_siglip(),
        text_config=transformers.GraniteConfig(**TEXT, logits_scaling=1.0, embedding_multiplier=3.0),
        image_token_index=IDS["<image>"],
        image_grid_pinpoints=GRIDS,
        vision_feature_layer=[-2, -1],
        vision_feature_select_strategy="full",
    )


def _onevision() -> transformers.PreTrainedConfig:
    return transformers.LlavaOnevisionConfig(
        vision_config=_siglip(),
        text_config=transformers.Qwen2Config(**TEXT),
        image_token_index=IDS["<image>"],
        image_grid_pinpoints=GRIDS,
        vision_aspect_ratio="anyres_max_2",  # so that larger images pass it
    )


GEMMA = {
    **{"head_dim": 16, "sliding_window": 8, "layer_types": ["sliding_attention"] * 2 + ["full_attention"]},
    "tie_word_embeddings": False,  # tied ones say the last token again, whatever was seen
}


def _gemma3() -> transformers.PreTrainedConfig:
    """An image has more tokens than a window."""
    return transformers.Gemma3Config(
        vision_config=_siglip(),
        text_config=transformers.Gemma3TextConfig(**TEXT, **GEMMA),
        mm_tokens_per_image=16,
        image_token_index=IDS["<image_soft_token>"],
        boi_token_index=IDS["<start_of_image>"],
        eoi_token_index=IDS["<end_of_image>"],
        tie_word_embeddings=False,
    )


def _paligemma() -> transformers.PreTrainedConfig:
    return transformers.PaliGemmaConfig(
        vision_config=_siglip(projection_dim=64),
        text_config=transformers.Gemma2Config(**TEXT, **GEMMA, attn_logit_softcapping=5.0),
        image_token_index=IDS["<image>"],
        projection_dim=64,
        hidden_size=64,
        tie_word_embeddings=False,
    )


def _pixtral() -> transformers.PixtralVisionConfig:
    size = {"hidden_size": 32, "intermediate_size": 48, "image_size": 64, "patch_size": 8}
    return transformers.PixtralVisionConfig(**VISION, **size)


def _pixtral_llava() -> transformers.PreTrainedConfig:
    return transformers.LlavaConfig(
        vision_config=_pixtral(),
        text_config=transformers.MistralConfig(**TEXT, sliding_window=None),
        image_token_index=IDS["[IMG]"],
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )


def _mistral3() -> transformers.PreTrainedConfig:
    """As Ministral 3 is; positions pass the length from which queries are scaled."""
    rope = {
        **{"rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 64},
        **{"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        "llama_4_scaling_beta": 0.1,
    }
    return transformers.Mistral3Config(
        vision_config=_pixtral(),
        text_config=transformers.Ministral3Config(**TEXT, head_dim=16, rope_parameters=rope),
        image_token_index=IDS["[IMG]"],
        tie_word_embeddings=False,
    )


def _lighton_ocr() -> transformers.PreTrainedConfig:
    return transformers.LightOnOcrConfig(
        vision_config=_pixtral(),
        text_config=transformers.Qwen3Config(**TEXT, head_dim=16),
        image_token_id=IDS["<|image_pad|>"],
        tie_word_embeddings=False,
    )


def _paddleocr() -> transformers.PreTrainedConfig:
    seen = {"hidden_size": 32, "intermediate_size": 48, "image_size": 32, "patch_size": 8}
    return transformers.PaddleOCRVLConfig(
        vision_config={**VISION, **seen},
        text_config={**TEXT, "head_dim": 16, "rope_parameters": MOVING, "tie_word_embeddings": False},
        **{**QWEN, "image_token_id": IDS["<|IMAGE_PLACEHOLDER|>"]},
        tie_word_embeddings=False,
    )


def _glm_ocr() -> transformers.PreTrainedConfig:
    seen = {
        **QWEN_VISION,
        **{"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64, "image_size": 32},
    }
    text = {**TEXT, "head_dim": 16, "rope_parameters": MOVING}
    tokens = {"image_token_id": IDS["<|image|>"], "video_token_id": IDS["<|video|>"]}
    return transformers.GlmOcrConfig(vision_config=seen, text_config=text, **tokens)


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


SQUARE = {"height": 32, "width": 32}
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
    "granite_vision": Tiny(_granite_vision, lambda: FAMILIES["llava_next"].images(), "<image>"),
    "llava_onevision": Tiny(
        _onevision,
        lambda: LlavaOnevisionImageProcessorPil(size=SQUARE, image_grid_pinpoints=GRIDS),
        "<image>",
    ),
    "gemma3": Tiny(_gemma3, lambda: Gemma3ImageProcessorPil(size=SQUARE), "<start_of_image>"),
    "paligemma": Tiny(_paligemma, lambda: SiglipImageProcessorPil(size=SQUARE), None),
    "pixtral": Tiny(
        _pixtral_llava, lambda: PixtralImageProcessorPil(size={"longest_edge": 48}, patch_size=8), "[IMG]"
    ),
    "mistral3": Tiny(
        _mistral3, lambda: PixtralImageProcessorPil(size={"longest_edge": 64}, patch_size=8), "[IMG]"
    ),
    "lighton_ocr": Tiny(
        _lighton_ocr,
        lambda: PixtralImageProcessorPil(size={"longest_edge": 64}, patch_size=8),
        "<|image_pad|>",
    ),
    "paddleocr_vl": Tiny(
        _paddleocr,
        lambda: PaddleOCRVLImageProcessorPil(patch_size=8, size={"shortest_edge": 256, "longest_edge": 4096}),
        SEEN.replace("<|image_pad|>", "<|IMAGE_PLACEHOLDER|>"),
    ),
    "glm_ocr": Tiny(
        _glm_ocr,
        lambda: Glm46VImageProcessorPil(patch_size=8, size={"shortest_edge": 512, "longest_edge": 8192}),
        SEEN.replace("<|image_pad|>", "<|image|>"),
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
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=EOS, bos_token=START)
    tokenizer.chat_template = None if tiny.place is None else template(tiny.place)
    tokenizer.save_pretrained(path)
    tiny.images().save_pretrained(path)
    return path


class Reference:
    """What transformers itself answers, one prompt at a time, its images processed by transformers too."""

    def __init__(self, path: Path, name: str) -> None:
        # others than eager attention know no soft caps
        self._model = transformers.AutoModelForImageTextToText.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager" if name == "paligemma" else "sdpa"
        )
        self._images = FAMILIES[name].images()
        self._name = name

    def inputs(self, ids: Sequence[int], images: Sequence[Image.Image]) -> dict[str, torch.Tensor]:
        made = {"input_ids": torch.tensor([list(ids)])}
        if images:
            nested = self._name in ("idefics3", "smolvlm", "llava_onevision")
            more = {"patch_size": 16} if self._name == "mistral3" else {}  # of what is merged to a token
            found = self._images(images=[[*images]] if nested else [*images], return_tensors="np", **more)
            made |= {
                key: torch.from_numpy(np.asarray(value))
                for key, value in found.items()
                if key not in ("num_patches", "num_crops")
            }
        if self._name == "gemma3":
            made["token_type_ids"] = (made["input_ids"] == IDS["<image_soft_token>"]).int()
        if self._name == "paligemma":
            made["token_type_ids"] = torch.zeros_like(made["input_ids"])
        if "image_grid_thw" in made:
            made["mm_token_type_ids"] = (made["input_ids"] == self._model.config.image_token_id).int()
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
