"""GLiClass directories of a few kilobytes, made with the library's own configuration class."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers as tf

from tests.engine.adapters.tiny_encoder import DIM, encoder
from tests.engine.adapters.tiny_tokenizer import tokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import gliclass

SIZE = {"hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
DEBERTA = {
    **SIZE,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "type_vocab_size": 0,
}
T5 = {
    "d_model": DIM,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "decoder_start_token_id": 0,
    "eos_token_id": 3,
    "initializer_factor": 2.0,
}
BART = {
    "d_model": DIM,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 600,
}
QWEN = {**SIZE, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 2048}
HYBRID = {
    **QWEN,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "tie_word_embeddings": False,
}
BACKBONES: dict[str, tuple[str, dict[str, Any]]] = {
    "deberta": ("deberta-v2", DEBERTA),
    "modernbert": ("modernbert", {**SIZE, "global_attn_every_n_layers": 2, "local_attention": 8}),
    "t5": ("t5", T5),
    "bart": ("bart", BART),
    "qwen": ("qwen3", QWEN),
    "hybrid": ("qwen3_5_text", HYBRID),
}
MARKS = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}


def made(folder: Path, backbone: str = "deberta", **more: Any) -> Path:
    """A GLiClass with random weights, saved as its authors publish them."""
    tokenizer(folder)
    marks = tf.AutoTokenizer.from_pretrained(folder)
    marks.add_tokens(["<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>"], special_tokens=True)
    marks.save_pretrained(folder)
    kind, size = BACKBONES[backbone]
    separator = marks.convert_tokens_to_ids("<<SEP>>")
    if more.get("architecture_type") == "decoder-kv":
        more["sep_token_index"] = separator
    if str(more.get("architecture_type")).startswith("bi-encoder"):
        beside = encoder(folder / "labels_encoder", "bert")
        more["label_model_name"] = str(beside)
        more["label_model_config"] = tf.AutoConfig.from_pretrained(beside)
    config = gliclass.GLiClassModelConfig(
        encoder_config=tf.AutoConfig.for_model(kind, vocab_size=len(marks), **{**MARKS, **size}),
        encoder_model="none",
        class_token_index=marks.convert_tokens_to_ids("<<LABEL>>"),
        text_token_index=separator,
        example_token_index=marks.convert_tokens_to_ids("<<EXAMPLE>>"),
        vocab_size=len(marks),
        **more,
    )
    torch.manual_seed(2)
    model = gliclass.GLiClassModel(config)
    for name, parameter in model.named_parameters():  # chances far from one another, and from 0 and 1
        if parameter.dim() > 1:
            parameter.data.mul_(3 if backbone == "deberta" else 2)
        elif "calibrator" in name:
            parameter.data.add_(0.1)
    if model.calibrator is not None:  # as it is made it changes nothing
        torch.nn.init.normal_(model.calibrator.mlp[-1].weight, std=0.5)
    model.save_pretrained(folder)
    return folder


def pipeline(path: Path) -> Any:
    """The library's own."""
    model = gliclass.GLiClassModel.from_pretrained(path)
    if hasattr(model.model, "encoder_decoder_model"):  # of the three that share one it ties two
        shared = model.model.encoder_decoder_model.shared.weight
        model.model.encoder_decoder_model.decoder.embed_tokens.weight = shared
    marks = tf.AutoTokenizer.from_pretrained(path)
    return gliclass.ZeroShotClassificationPipeline(model, marks, device="cpu", progress_bar=False)
