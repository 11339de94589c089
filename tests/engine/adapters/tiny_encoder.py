"""A tiny encoder with its tokenizer, as models that read words name it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers as tf

from tests.engine.adapters.tiny_tokenizer import tokenizer

DIM = 32


def encoder(folder: Path, kind: str = "deberta-v2") -> Path:
    """A tiny encoder with its tokenizer."""
    tokenizer(folder)
    size = {
        "vocab_size": len(tf.AutoTokenizer.from_pretrained(folder)),
        "hidden_size": DIM,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "pad_token_id": 0,
    }
    if kind == "deberta-v2":
        config: Any = tf.DebertaV2Config(
            **size,
            relative_attention=True,
            position_biased_input=False,
            pos_att_type=["p2c", "c2p"],
            position_buckets=16,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            max_position_embeddings=512,
            type_vocab_size=0,
        )
    else:
        config = tf.BertConfig(**size, max_position_embeddings=512)
    tf.AutoModel.from_config(config).save_pretrained(folder)
    return folder
