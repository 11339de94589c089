"""A Whisper of a few thousand random weights that hears windows of 4 s, as a directory."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import soundfile
import torch
import transformers as tf
from tokenizers import AddedToken

from tests.engine.adapters.tiny_decoders import byte_level

LANGUAGES = ("en", "de", "fr")
MARKS = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES)]
MARKS += [
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]
TIMES = [f"<|{step * 0.02:.2f}|>" for step in range(201)]

WINDOW = 4
"""Seconds."""


def save(path: Path, multilingual: bool = True) -> Path:
    torch.manual_seed(3)
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in [*MARKS, *TIMES]])
    ids = {mark: tokenizer.token_to_id(mark) for mark in MARKS}
    config = tf.WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(),
        **{"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "num_mel_bins": 80, "init_std": 0.3},
        **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
        **{
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_target_positions": 64,
            "max_source_positions": 50 * WINDOW,
        },
        bos_token_id=ids["<|endoftext|>"],
        eos_token_id=ids["<|endoftext|>"],
        pad_token_id=ids["<|endoftext|>"],
        decoder_start_token_id=ids["<|startoftranscript|>"],
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = tf.WhisperForConditionalGeneration(config)
    model.generation_config = tf.GenerationConfig(
        bos_token_id=ids["<|endoftext|>"],
        eos_token_id=ids["<|endoftext|>"],
        pad_token_id=ids["<|endoftext|>"],
        decoder_start_token_id=ids["<|startoftranscript|>"],
        max_length=24,
        max_initial_timestamp_index=50,
        is_multilingual=multilingual,
        lang_to_id={f"<|{code}|>": ids[f"<|{code}|>"] for code in LANGUAGES},
        task_to_id={task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")},
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        return_timestamps=False,
    )
    model.save_pretrained(path)
    tokenizer.save(str(path / "tokenizer.json"))
    tf.WhisperFeatureExtractor(feature_size=80, chunk_length=WINDOW).save_pretrained(path)
    return path


def sound(seconds: float, seed: int = 0, rate: int = 16_000, channels: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    times = np.arange(int(seconds * rate)) / rate
    tones = sum(np.sin(2 * np.pi * f * times) for f in random.uniform(80, 3000, 6)) / 12
    made = (tones + random.normal(0, 0.02, len(times))).astype(np.float32)
    return made if channels == 1 else np.repeat(made[:, None], channels, axis=1)


def recording(samples: np.ndarray, kind: str = "WAV", rate: int = 16_000) -> bytes:
    held = BytesIO()
    soundfile.write(held, samples, rate, format=kind)
    return held.getvalue()
