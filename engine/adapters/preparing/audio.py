"""Recordings as models hear them: one channel of 16,000 samples a second, from whatever was sent."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import soundfile  # type: ignore[import-untyped]
import soxr  # type: ignore[import-untyped]
from numpy.typing import NDArray

from engine.errors import InputTooLong, InvalidInput
from engine.requests import Item

RATE = 16_000
"""Samples a second that speech models are trained on."""
SLOWEST, FASTEST = 4_000, 384_000
"""Samples a second of what is taken."""
BLOCK = 1 << 18
"""Samples that are decoded at once: a file's own word for its length is not believed."""
TAKEN = "WAV, FLAC, MP3, Ogg (Vorbis, Opus) or AIFF"
STRANGE = {b"ftyp": "an MP4 or M4A file", b"\x1aE\xdf\xa3": "a WebM or Matroska file"}
"""What clients send that is not decoded here, by bytes near its beginning."""

Samples = NDArray[np.float32]


def samples(item: Item, longest_ms: int) -> Samples:
    """(samples,) between -1 and 1. Raises InvalidInput for what is no recording, InputTooLong."""
    if item.audio is None or item.text is not None or item.images or item.video or item.document:
        raise InvalidInput("This model takes one recording an item (audio), and nothing else.")
    data = item.audio.data
    try:
        with soundfile.SoundFile(BytesIO(data)) as file:
            mono, rate = _read(file, longest_ms), int(file.samplerate)
    except soundfile.LibsndfileError as error:
        raise InvalidInput(_unreadable(data, error)) from None
    if not len(mono):
        raise InvalidInput("The recording is empty.")
    heard = mono if rate == RATE else soxr.resample(mono, rate, RATE).astype(np.float32)
    if not len(heard):
        raise InvalidInput("The recording is too short to hear anything in it.")
    if not np.isfinite(heard).all():
        raise InvalidInput("The recording holds samples that are no numbers.")
    return heard


def _read(file: soundfile.SoundFile, longest_ms: int) -> Samples:
    """All channels as one. Memory follows what is there, and stops at the limit."""
    if not SLOWEST <= file.samplerate <= FASTEST:
        raise InvalidInput(
            f"The recording has {file.samplerate} samples a second; {SLOWEST} to {FASTEST} are taken."
        )
    most = longest_ms * file.samplerate // 1000
    blocks: list[Samples] = []
    total = 0
    size = max(1, BLOCK // file.channels)
    while len(block := file.read(size, dtype="float32", always_2d=True)):
        total += len(block)
        if total > most:
            raise InputTooLong(
                f"The recording is longer than {longest_ms} ms, which is the most that is taken of one. "
                "Send it in parts.",
                limit=longest_ms,
            )
        blocks.append(block.mean(axis=1))
    return np.concatenate(blocks) if blocks else np.empty(0, np.float32)


def _unreadable(data: bytes, error: soundfile.LibsndfileError) -> str:
    """What it seems to be, and what to send instead."""
    kind = next((name for mark, name in STRANGE.items() if mark in data[:12]), None)
    if kind is not None:
        return f"This is {kind}, which is not decoded here. Send {TAKEN}; ffmpeg -i FILE out.flac makes one."
    return f"The recording cannot be decoded ({error.error_string}). Send {TAKEN}."
