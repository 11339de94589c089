"""A Donut of a few thousand random weights that answers questions about images, as a directory."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    AutoTokenizer,
    DonutSwinConfig,
    DonutSwinModel,
    MBartConfig,
    MBartForCausalLM,
    VisionEncoderDecoderModel,
)
from transformers.models.donut.image_processing_pil_donut import DonutImageProcessorPil

from tests.engine.adapters import tiny_vision

PROMPT = "<s_docvqa><s_question>{question}</s_question><s_answer>"
FIELDS = ["<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>", "<sep/>"]


def save(path: Path) -> Path:
    torch.manual_seed(0)
    tiny_vision.words(path, "<s>", "</s>", "<pad>", **{"<s>": 0, "<pad>": 1, "</s>": 2})
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.add_tokens(FIELDS)
    tokenizer.save_pretrained(path)
    encoder = DonutSwinModel(
        DonutSwinConfig(image_size=[64, 32], embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4)
    )
    decoder = MBartForCausalLM(
        MBartConfig(
            vocab_size=len(tokenizer),
            d_model=32,
            decoder_layers=2,
            decoder_attention_heads=2,
            is_decoder=True,
            decoder_ffn_dim=32,
            max_position_embeddings=40,
            add_cross_attention=True,
            is_encoder_decoder=False,
            tie_word_embeddings=False,
        )
    )
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    model.config.decoder_start_token_id, model.config.pad_token_id = 0, 1
    model.config.tie_word_embeddings = False
    tiny_vision.save(path, model, DonutImageProcessorPil(size={"height": 64, "width": 32}), 0.3)
    return path
