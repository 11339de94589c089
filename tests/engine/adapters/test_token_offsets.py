"""Places in the text by the kinds of tokenizer that token classifiers have, beside transformers' pipeline."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from engine.adapters.token_classifier import FAMILY
from engine.entry import ModelSpec, Source
from engine.requests import ExtractOptions, Item, Task

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

TEXTS = [
    "Anna O'Brien lives in  Ulm, since 1999.",
    "\U0001f600 José Álvarez-Núñez,\r\n17b Elm Road",
    "Grüße aus Zürich",
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
TAGS = {
    "bio": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
    "bioes": ["O", "B-PER", "I-PER", "E-PER", "S-PER"],
    "bilou": ["O", "B-PER", "I-PER", "L-PER", "U-PER"],
    "plain": ["O", "PER", "LOC"],
}
SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "pad_token_id": 1,
}


def byte_level() -> Tokenizer:
    """As RoBERTa and ModernBERT have it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return made


def metaspace() -> Tokenizer:
    """As XLM-R and DeBERTa-v3 have it, but for the mark before the first word: it has the first letter's
    place, so that the pipeline's spans overlap where it is labelled for itself."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


FAMILIES = {
    "roberta": (byte_level, tf.RobertaConfig, {"type_vocab_size": 1}),
    "xlm-roberta": (metaspace, tf.XLMRobertaConfig, {"type_vocab_size": 1}),
    "deberta-v2": (
        metaspace,
        tf.DebertaV2Config,
        {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    "modernbert": (
        byte_level,
        tf.ModernBertConfig,
        {"bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2},
    ),
}


@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("name", FAMILIES)
def test_spans_lie_where_the_reference_has_them(name, tags, tmp_path):
    tokenizer, made, more = FAMILIES[name]
    library = tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), pad_token="<pad>", unk_token="<unk>", cls_token="<s>", sep_token="</s>"
    )
    library.save_pretrained(tmp_path)
    names = dict(enumerate(TAGS[tags]))
    config = made(
        vocab_size=len(library), id2label=names, label2id={v: k for k, v in names.items()}, **SIZE, **more
    )
    torch.manual_seed(4)
    model = tf.AutoModelForTokenClassification.from_config(config).eval()
    for parameter in model.parameters():
        parameter.data.mul_(5) if parameter.dim() > 1 else None
    model.save_pretrained(tmp_path)
    pipeline = tf.pipeline(
        "token-classification", model=model, tokenizer=library, aggregation_strategy="simple", device="cpu"
    )
    spec = ModelSpec(
        id="a/b",
        family="token_classifier",
        tasks=("extract",),
        devices=("cpu",),
        options={"aggregation": "simple"},
        sources=(Source(directory=str(tmp_path)),),
    )
    jobs = FAMILY.preparer(spec, tmp_path).prepare(
        Task.EXTRACT, [Item(text=text) for text in TEXTS], ExtractOptions()
    )

    for text, answer in zip(TEXTS, FAMILY.load(spec, tmp_path, "cpu").run(jobs), strict=True):
        assert all(text[e.start : e.end] == e.text == e.text.strip() for e in answer.entities)
        if tags in ("bioes", "bilou"):
            continue  # the pipeline does not know what ends a span
        theirs = [e for e in pipeline(text) if text[e["start"] : e["end"]].strip()]
        assert [e.label for e in answer.entities] == [e["entity_group"] for e in theirs]
        assert [e.text for e in answer.entities] == [text[e["start"] : e["end"]].strip() for e in theirs]
        assert np.allclose([e.score for e in answer.entities], [e["score"] for e in theirs], atol=1e-4)
