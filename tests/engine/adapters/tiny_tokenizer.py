"""A tokenizer of letters and a few whole words, as a model directory holds it."""

from __future__ import annotations

import string
from pathlib import Path

import transformers as tf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

FIRST, LAST, PLACES = ("Zork", "Quax"), ("Blim", "Drum"), ("Ulm", "Oslo")
LABELS = ("person", "name", "place")


def tokenizer(folder: Path) -> None:
    """WordPiece over single letters and a few pieces, as BERT and DeBERTa directories hold it."""
    pieces = [*string.ascii_letters, *string.digits, *string.punctuation, "é", "ü"]
    whole = ["an", "in", "on", "word", "the", *LABELS, "date", *FIRST, *LAST, *PLACES]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *whole, *pieces, *(f"##{piece}" for piece in pieces)]
    made = Tokenizer(models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    marks = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tf.PreTrainedTokenizerFast(tokenizer_object=made, **marks).save_pretrained(folder)
