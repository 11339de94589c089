"""Encoders of T5 (sentence-t5, gtr, Instructor) give what sentence-transformers makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from tests.engine.adapters.tiny_texts import LONGEST, TEXTS, WORDS, Served, saved

KINDS: dict[str, dict[str, Any]] = {
    "t5": {},
    "mt5": {"feed_forward_proj": "gated-gelu"},
    "umt5": {"feed_forward_proj": "gated-gelu"},
}


def directory(kind: str, folder: Path, include_prompt: bool = True) -> tuple[SentenceTransformer, Path]:
    config = tf.AutoConfig.for_model(
        kind,
        vocab_size=len(WORDS),
        d_model=32,
        d_kv=16,
        d_ff=48,
        num_layers=2,
        num_heads=2,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
        pad_token_id=0,
        eos_token_id=7,
        decoder_start_token_id=0,
        initializer_factor=3.0,
        **KINDS[kind],
    )
    plain = saved(config, folder / "plain", tf.AutoModelForTextEncoding, "$A <eos>")
    modules = [
        Transformer(str(plain), max_seq_length=LONGEST),
        Pooling(32, "mean", include_prompt=include_prompt),
        Dense(32, 24, bias=False, activation_function=torch.nn.Identity()),
        Normalize(),
    ]
    library = SentenceTransformer(modules=modules, device="cpu")
    library.save(str(folder / "saved"), create_model_card=False)
    return library, folder / "saved"


def dense(outputs: list[Any]) -> np.ndarray:
    return np.stack([output.dense for output in outputs])


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_sentence_transformers_in_a_batch_and_alone(kind, tmp_path, compared):
    library, path = directory(kind, tmp_path)
    served = Served(path, outputs=("dense",), dims={"dense": 24})

    together = dense(served.encode(TEXTS))
    turned = dense(served.encode(TEXTS[::-1]))[::-1]
    alone = np.concatenate([dense(served.encode([text])) for text in TEXTS])

    expected = library.encode(TEXTS, batch_size=1)
    compared("text_encoder", f"tiny {kind}", "sentence-transformers", together, expected, alone)
    assert np.abs(together - expected).max() <= 1e-4
    assert np.abs(together - alone).max() <= 1e-5
    assert np.abs(turned - alone).max() <= 1e-5
    assert np.abs(together[0] - together[5]).max() > 1e-2


def test_an_instruction_is_read_and_not_averaged_as_instructor_models_want_it(tmp_path):
    library, path = directory("t5", tmp_path, include_prompt=False)
    served = Served(path, outputs=("dense",))

    found = dense(served.encode(TEXTS, instruction="w7 w8 ! "))

    assert np.abs(found - library.encode(TEXTS, prompt="w7 w8 ! ", batch_size=1)).max() <= 1e-4
    assert np.abs(found - dense(served.encode(TEXTS))).max() > 1e-2


def test_a_whole_translator_is_held_by_its_encoder_alone(tmp_path):
    _, path = directory("t5", tmp_path)
    whole = tf.T5Model(tf.AutoConfig.from_pretrained(path))
    encoder = {name: t for name, t in whole.state_dict().items() if not name.startswith("decoder")}
    whole.save_pretrained(path)

    served = Served(path, outputs=("dense",))

    held = sum(t.nbytes for name, t in encoder.items() if name != "encoder.embed_tokens.weight")
    assert served.footprint.weights_bytes == held + 24 * 32 * 4
    assert np.isfinite(dense(served.encode(TEXTS))).all()
