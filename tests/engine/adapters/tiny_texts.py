"""Tiny random text models in directories, each of its family's own configuration class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from engine.adapters.family import family
from engine.catalog import ModelSpec, Source
from engine.requests import EncodeOptions, Item, ScoreOptions, Task

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q] ", "[D] ", "<eos>"]
WORDS = [*SPECIAL, *(f"w{i}" for i in range(60)), *"!,.?:", "yes", "no"]
TEXTS = ["w1 w2 w3", "w9", "w4 , w5 ! w6 w7", " ".join(f"w{i % 50}" for i in range(37)), "w8 w8 ?", "w9 w1"]
LONGEST = 64

SMALL: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": LONGEST + 8,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 7,
}
GQA: dict[str, Any] = {**SMALL, "num_key_value_heads": 1, "head_dim": 16}


DISTIL: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "dim": 32,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 48,
    "pad_token_id": 0,
    "max_position_embeddings": LONGEST + 8,
}
DEBERTA: dict[str, Any] = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
}
FAMILIES: dict[str, Callable[[], tf.PretrainedConfig]] = {
    "bert": lambda: tf.BertConfig(**SMALL),
    "roberta": lambda: tf.RobertaConfig(**SMALL, type_vocab_size=1),
    "xlm-roberta": lambda: tf.XLMRobertaConfig(**SMALL, type_vocab_size=1),
    "distilbert": lambda: tf.DistilBertConfig(**DISTIL),
    "mpnet": lambda: tf.MPNetConfig(**SMALL),
    "electra": lambda: tf.ElectraConfig(**SMALL, embedding_size=16),
    "nomic_bert": lambda: tf.CONFIG_MAPPING["nomic_bert"](**SMALL),
    "modernbert": lambda: tf.ModernBertConfig(
        **SMALL, local_attention=8, cls_token_id=2, sep_token_id=3, global_attn_every_n_layers=2
    ),
    "eurobert": lambda: tf.EuroBertConfig(**GQA),
    "jina_embeddings_v3": lambda: tf.CONFIG_MAPPING["jina_embeddings_v3"](**SMALL),
    "deberta": lambda: tf.DebertaConfig(**SMALL, **DEBERTA),
    "deberta-v2": lambda: tf.DebertaV2Config(**SMALL, **DEBERTA),
    "qwen3": lambda: tf.Qwen3Config(**GQA),
    "mistral": lambda: tf.MistralConfig(**GQA, sliding_window=6),
    "llama": lambda: tf.LlamaConfig(**GQA),
    "gemma3_text": lambda: tf.Gemma3TextConfig(**GQA, sliding_window=8),
    "embeddinggemma": lambda: tf.Gemma3TextConfig(**GQA, sliding_window=8, use_bidirectional_attention=True),
}
DECODERS = ("qwen3", "mistral", "llama", "gemma3_text")


def tokenizer(ends: str, types: bool = False) -> tf.PreTrainedTokenizerFast:
    """A word a token. `ends`: how a text is framed, as `[CLS] $A [SEP]`."""
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    framed = [(token, WORDS.index(token)) for token in ("[CLS]", "[SEP]", "<eos>")]
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1" if "[SEP]" in ends else "$A $B"
    made.post_processor = processors.TemplateProcessing(single=ends, pair=pair, special_tokens=framed)
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        eos_token="<eos>",
        model_max_length=LONGEST,
        model_input_names=["input_ids", "attention_mask", *["token_type_ids"][: int(types)]],
    )


def saved(
    config: tf.PretrainedConfig, to: Path, auto: Any = tf.AutoModel, ends: str = "[CLS] $A [SEP]"
) -> Path:
    torch.manual_seed(0)
    config.initializer_range = 0.3
    auto.from_config(config).eval().save_pretrained(to)
    tokenizer(ends, config.model_type in ("bert", "electra", "nomic_bert")).save_pretrained(to)
    return to


def entry(**given: Any) -> ModelSpec:
    """An entry of the text encoder that encodes and scores, with `given` in place of its own."""
    fields = {"id": "tiny/text", "family": "text_encoder", "tasks": (Task.ENCODE, Task.SCORE)} | given
    return ModelSpec(sources=(Source(directory="/nowhere"),), **fields)


class Served:
    """A family, its preparer and its model, driven as the engine drives them."""

    def __init__(self, path: Path, **given: Any) -> None:
        self.spec = entry(**given)
        made = family(self.spec.family)
        self.footprint = made.footprint(self.spec, path)
        self.preparer = made.preparer(self.spec, path)
        self.model: Any = made.load(self.spec, path, "cpu")

    def prepare(self, texts: Sequence[str], **options: Any) -> list[Any]:
        return self.preparer.prepare(Task.ENCODE, [Item(text=t) for t in texts], EncodeOptions(**options))

    def encode(self, texts: Sequence[str], **options: Any) -> list[Any]:
        return list(self.model.run(self.prepare(texts, **options)))

    def matches(self, query: str, texts: Sequence[str], **options: Any) -> list[Any]:
        items = [Item(text=text) for text in texts]
        asked = ScoreOptions(query=Item(text=query), **options)
        return self.preparer.prepare(Task.SCORE, items, asked)

    def score(self, query: str, texts: Sequence[str], **options: Any) -> list[float]:
        return [output.score for output in self.model.run(self.matches(query, texts, **options))]
