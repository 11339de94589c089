"""Tiny vision models with random weights, in directories as the families read them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import torch
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Punctuation, Sequence, Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from engine.catalog import ModelSpec, Source
from engine.requests import Item, Media, Task

WORDS = [
    "a",
    "an",
    "the",
    "photo",
    "of",
    "this",
    "is",
    "cat",
    "dog",
    "car",
    "remote",
    "control",
    "red",
    "blue",
    ".",
    ",",
    "?",
    "what",
    "total",
    "invoice",
]


def entry(family: str, *tasks: Task, **keys: object) -> ModelSpec:
    keys.setdefault("inputs", ("image",))
    return ModelSpec(
        id=f"tiny/{family}", family=family, tasks=tasks, sources=(Source(directory="."),), **keys
    )


def save(path: Path, model: PreTrainedModel, processor: object, seed_noise: float = 0.0) -> PreTrainedModel:
    """Writes the directory, and gives the model back for reference."""
    torch.manual_seed(1)
    if seed_noise:
        # what is zero or one in a fresh model would hide mistakes
        for weight in model.parameters():
            weight.data += seed_noise * torch.randn_like(weight)
    model.eval().save_pretrained(path)
    processor.save_pretrained(path)
    return model


def words(path: Path, begin: str, end: str, pad: str, unknown: str = "[UNK]", **special: int) -> None:
    """A tokenizer of whole words, with tokens around a text."""
    vocabulary = dict(special)
    for token in (pad, begin, end, unknown, *WORDS):
        if token not in vocabulary:
            vocabulary[token] = next(i for i in range(5000) if i not in vocabulary.values())
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = Sequence([Whitespace(), Punctuation()])
    tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(t, vocabulary[t]) for t in (begin, end)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=unknown,
        pad_token=pad,
        cls_token=begin,
        bos_token=begin,
        sep_token=end,
        eos_token=end,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(path)


def change(path: Path, **keys: object) -> None:
    held = json.loads((path / "preprocessor_config.json").read_text("utf-8"))
    (path / "preprocessor_config.json").write_text(json.dumps({**held, **keys}), "utf-8")


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    torch.manual_seed(seed)
    coarse = torch.randint(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=torch.uint8).numpy()
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def png(image: Image.Image, orientation: int | None = None) -> bytes:
    out = io.BytesIO()
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    image.save(out, "PNG", exif=exif)
    return out.getvalue()


def shown(*images: Image.Image) -> list[Item]:
    return [Item(images=(Media(png(image)),)) for image in images]
