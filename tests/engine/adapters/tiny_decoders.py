"""Decoders of a few thousand random weights, as directories that the family loads like any other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.catalog import ModelSpec, Source
from engine.requests import Task

EOS = "<|im_end|>"
START = "<|im_start|>"
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SMALL = {
    "vocab_size": 258,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "pad_token_id": 256,
    "bos_token_id": None,
    "eos_token_id": 257,
}
CONFIGS = {
    "llama": transformers.LlamaConfig(**SMALL),
    "llama, tied": transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "qwen2": transformers.Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=8, max_window_layers=1, tie_word_embeddings=False
    ),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=24),
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=None),
    "mistral, windows": transformers.MistralConfig(**SMALL, sliding_window=8),
    "gemma2": transformers.Gemma2Config(
        **SMALL,
        **{"head_dim": 16, "sliding_window": 8, "attn_logit_softcapping": 2.0, "tie_word_embeddings": False},
        **{"final_logit_softcapping": 3.0, "query_pre_attn_scalar": 10},
    ),
    "granite": transformers.GraniteConfig(
        **SMALL,
        attention_multiplier=0.3,
        logits_scaling=2.0,
        residual_multiplier=0.7,
        embedding_multiplier=3.0,
    ),
    "olmo2": transformers.Olmo2Config(**SMALL),
    "phi3": transformers.Phi3Config(**SMALL, sliding_window=8),
    "phi3, long": transformers.Phi3Config(
        **SMALL,
        original_max_position_embeddings=128,
        rope_parameters={
            **{"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 128},
            **{"short_factor": [1.0 + at / 8 for at in range(8)], "long_factor": [4.0] * 8, "factor": 2.0},
        },
    ),
    "smollm3": transformers.SmolLM3Config(**SMALL, no_rope_layers=[1, 1, 0]),
    "gemma3": transformers.Gemma3TextConfig(
        **SMALL,
        **{"head_dim": 16, "sliding_window": 8, "tie_word_embeddings": False},
        layer_types=["sliding_attention"] * 2 + ["full_attention"],
    ),
}


def spec(path: Path, **changes: object) -> ModelSpec:
    made = ModelSpec(
        id="tests/decoder",
        family="causal_lm",
        tasks=(Task.GENERATE,),
        sources=(Source(directory=str(path)),),
    )
    return made.model_copy(update=changes)


def save(path: Path, config: transformers.PreTrainedConfig, template: str | None = TEMPLATE) -> Path:
    """A model directory of random weights, the same for every call, with a tokenizer of one token a byte."""
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.generation_config.do_sample = False
    model.save_pretrained(path)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token=EOS)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(path)
    return path


def byte_level() -> Tokenizer:
    """One token a byte, spelled as GPT-2 spells bytes, and two special tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {chr(byte): byte for byte in printable}
    spelled |= {chr(256 + at): byte for at, byte in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(spelled, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(START, special=True), AddedToken(EOS, special=True)])
    return tokenizer


class Reference:
    """What transformers' own `generate` answers, one prompt at a time."""

    def __init__(self, path: Path) -> None:
        # the others know no soft caps
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager"
        )

    def greedy(self, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        mask = torch.ones_like(ids)
        out = self._model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=max_new_tokens)
        return [int(token) for token in out[0, len(prompt) :]]

    @torch.inference_mode()
    def agrees(self, prompt: Sequence[int], expected: list[int], actual: list[int]) -> bool:
        """Whether two answers are the same up to a place where two tokens were equally good (1e-4)."""
        if actual == expected:
            return True
        shared = next(
            (at for at, pair in enumerate(zip(expected, actual, strict=False)) if pair[0] != pair[1]), None
        )
        if shared is None:
            return False
        ids = torch.tensor([[*prompt, *expected[:shared]]])
        best = self._model(input_ids=ids).logits[0, -1].topk(2)
        return float(best.values[0] - best.values[1]) < 1e-4
