"""GLiNER2 directories of a few kilobytes, made with the library's own model class."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from tests.engine.adapters.tiny_encoder import DIM, encoder
from tests.engine.adapters.tiny_gliner import HEIGHT, unchanged
from tests.engine.adapters.tiny_tokenizer import FIRST, LAST, PLACES

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from gliner2 import AutoExtractor, ExtractorConfig, GLiNER2


def gliner2(folder: Path, kind: str = "deberta-v2", seed: int = 0, **config: Any) -> Path:
    """A GLiNER2 with random weights, saved as its authors publish them."""
    torch.manual_seed(seed)
    named = str(encoder(folder / "base", kind))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GLiNER2(
            ExtractorConfig(model_name=named, **{"max_width": 6, **config}),
            encoder_config=tf.AutoConfig.from_pretrained(named),
            tokenizer=tf.AutoTokenizer.from_pretrained(named),
        )
        for name, parameter in model.named_parameters():  # scores far from one another, and from 0 and 1
            parameter.data.mul_(3 if name.startswith("encoder") else 1.6) if parameter.dim() > 1 else None
        model.eval().save_pretrained(str(folder / "model"))
    return folder / "model"


def boundary(folder: Path, **head: Any) -> Path:
    """A GLiNER2.5 with random weights; `head` is what its configuration says of its head."""
    torch.manual_seed(0)
    named = str(encoder(folder / "base"))
    small = {"boundary_dim": 16, "pair_dim": 16, "record_dim": 16, "dropout": 0.0}
    small |= {"candidate_attention_heads": 2, "multihead_pair_compat_heads": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoExtractor.from_config(
            ExtractorConfig(model_name=named, architecture="boundary", boundary_head={**small, **head}),
            encoder_config=tf.AutoConfig.from_pretrained(named),
            tokenizer=tf.AutoTokenizer.from_pretrained(named),
        )
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.data.mul_(3 if name.startswith(("encoder", "boundary_head")) else 2)
        for name in ("null_projection", "count_head"):  # as they are made they say the same of everything
            torch.nn.init.normal_(getattr(model.boundary_head, name).weight, std=0.2)
        model.eval().save_pretrained(str(folder / "model"))
    return folder / "model"


def planted(folder: Path) -> Path:
    """A GLiNER2 that finds, for whatever entity or field, what runs from one of FIRST to one of LAST and
    each of PLACES, and that counts one instance of everything.

    As `tiny_gliner.planted`; a label's vector is that of its marker, so that all labels find the same.
    """
    path = gliner2(folder, max_width=4)
    written = (path / "tokenizer.json").read_text()  # the library reads words in lower case
    for word in (*FIRST, *LAST, *PLACES):
        written = written.replace(f'"{word}"', f'"{word.lower()}"')
    (path / "tokenizer.json").write_text(written)
    state = load_file(path / "model.safetensors")
    words = tf.AutoTokenizer.from_pretrained(path).get_vocab()
    for name, tensor in state.items():
        if ".layer." in name and ".output." in name and "LayerNorm" not in name:
            tensor.zero_()
    kinds = {word: kind for kind, group in enumerate((FIRST, LAST, PLACES)) for word in group}
    kinds = {word.lower(): kind for word, kind in kinds.items()} | dict.fromkeys(("[E]", "[C]", "[R]"), 8)
    rows = [kinds.get(word, 20) for word in sorted(words, key=words.__getitem__)]
    state["encoder.embeddings.word_embeddings.weight"] = torch.eye(DIM)[rows]
    span = "span_rep.span_rep_layer"
    for part in (f"{span}.project_start", f"{span}.project_end"):
        unchanged(state, part)
    for part in (f"{span}.out_project.0", f"{span}.out_project.3", "count_pred.2", "count_embed.projector.0"):
        state[f"{part}.weight"].zero_()
        state[f"{part}.bias"].zero_()
    state["count_pred.2.bias"][1] = 1
    eye = torch.eye(DIM)
    state["count_embed.projector.0.weight"][: 2 * DIM, DIM:] = torch.cat([eye, -eye])
    state["count_embed.projector.2.bias"].zero_()
    state["count_embed.projector.2.weight"].zero_()
    state["count_embed.projector.2.weight"][:, : 2 * DIM] = torch.cat([eye, -eye], 1)
    for unit, (start, end) in enumerate([(0, 1), (2, 2)]):
        state[f"{span}.out_project.0.weight"][unit, [start, DIM + end]] = 1 / HEIGHT
        state[f"{span}.out_project.0.bias"][unit] = -1
        state[f"{span}.out_project.3.weight"][8, unit] = 3 - unit / 2
    state[f"{span}.out_project.3.bias"][8] = -1
    save_file(state, path / "model.safetensors")
    return path
