"""A token classifier whose weights are set: a person from one of FIRST on, and places."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers as tf

from tests.engine.adapters.tiny_encoder import DIM
from tests.engine.adapters.tiny_gliner import one_hot
from tests.engine.adapters.tiny_tokenizer import tokenizer

TAGS = ("O", "B-person", "I-person", "B-place")
KINDS = {0: "B-person", 1: "I-person", 2: "B-place", 3: "I-person"}
"""What each kind of token is called."""


def planted(folder: Path) -> Path:
    """It says of every token what `tiny_gliner.one_hot` says it is; "the" belongs to a person."""
    tokenizer(folder)
    words = tf.AutoTokenizer.from_pretrained(folder).get_vocab()
    config = tf.BertConfig(
        vocab_size=len(words),
        hidden_size=DIM,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=128,
        pad_token_id=0,
        id2label=dict(enumerate(TAGS)),
        label2id={tag: place for place, tag in enumerate(TAGS)},
    )
    model = tf.BertForTokenClassification(config)
    state = model.state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            wipes = ".layer." in name and ".output." in name and "LayerNorm" not in name
            if wipes or "position_embeddings" in name or "token_type" in name or "classifier" in name:
                tensor.zero_()
        state["bert.embeddings.word_embeddings.weight"].copy_(one_hot(words))
        for kind, tag in KINDS.items():
            state["classifier.weight"][TAGS.index(tag), kind] = 2
        state["classifier.weight"][0, 20] = 2
    model.load_state_dict(state)
    model.eval().save_pretrained(folder)
    return folder
