"""GLiNER directories of a few kilobytes, made with the library's own configuration classes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER, GLiNERConfig

from tests.engine.adapters.tiny_encoder import DIM, encoder
from tests.engine.adapters.tiny_tokenizer import FIRST, LABELS, LAST, PLACES


def gliner(folder: Path, kind: str = "deberta-v2", seed: int = 0, **config: Any) -> Path:
    """A GLiNER with random weights, saved as its authors publish them, with safetensors."""
    torch.manual_seed(seed)
    named = str(encoder(folder / "base", kind))
    sizes = {"hidden_size": DIM, "max_width": 6, "max_len": 384, "dropout": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GLiNER.from_config(
            GLiNERConfig(model_name=named, **{**sizes, **config}), backbone_from_pretrained=False
        )
        for parameter in model.parameters():  # scores far from one another: none are alike by chance
            parameter.data.mul_(3) if parameter.dim() > 1 else None
        model.eval().save_pretrained(folder / "model", safe_serialization=True)
    return folder / "model"


def planted(folder: Path) -> Path:
    """A GLiNER whose weights are set so that it finds, and finds nothing else: a person from one of FIRST to
    one of LAST, in it a name (one of FIRST), and a place (one of PLACES).

    Its layers give every token back unchanged; a token's vector says which of these it is. A span's is the
    sum of both ends' less one, which is left only where both are right.
    """
    path = gliner(folder, embed_ent_token=False, num_rnn_layers=0, max_width=4)
    model = GLiNER.from_pretrained(str(path), local_files_only=True)
    words = model.data_processor.transformer_tokenizer.get_vocab()
    state = model.model.state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            if ".layer." in name and ".output." in name and "LayerNorm" not in name:
                tensor.zero_()
        kinds = {word: kind for kind, group in enumerate((FIRST, LAST, PLACES)) for word in group}
        kinds |= {label: 8 + place for place, label in enumerate(LABELS)}
        embeddings = state["token_rep_layer.bert_layer.model.embeddings.word_embeddings.weight"]
        embeddings.copy_(
            torch.eye(DIM)[[kinds.get(word, 20) for word in sorted(words, key=words.__getitem__)]]
        )
        for part in (
            "span_rep_layer.span_rep_layer.project_start",
            "span_rep_layer.span_rep_layer.project_end",
        ):
            unchanged(state, part)
        unchanged(state, "prompt_rep_layer")
        height = (1 - 1 / DIM) / (1 / DIM - 1 / DIM**2) ** 0.5  # of a one among zeros, once normalised
        inner, outer = (f"span_rep_layer.span_rep_layer.out_project.{layer}" for layer in (0, 3))
        for name in (f"{inner}.weight", f"{inner}.bias", f"{outer}.weight", f"{outer}.bias"):
            state[name].zero_()
        for unit, (start, end) in enumerate([(0, 1), (0, 0), (2, 2)]):
            state[f"{inner}.weight"][unit, [start, DIM + end]] = 1 / height
            state[f"{inner}.bias"][unit] = -1
            state[f"{outer}.weight"][8 + unit, unit] = 3 - unit / 2
            state[f"{outer}.bias"][8 + unit] = -1
    model.save_pretrained(path, safe_serialization=True)
    return path


def unchanged(state: dict[str, torch.Tensor], part: str) -> None:
    """A layer, a rectifier and a layer that together give back what they are given."""
    eye = torch.eye(DIM)
    for layer in (0, 3):
        state[f"{part}.{layer}.weight"].zero_()
        state[f"{part}.{layer}.bias"].zero_()
    state[f"{part}.0.weight"][: 2 * DIM] = torch.cat([eye, -eye])
    state[f"{part}.3.weight"][:, : 2 * DIM] = torch.cat([eye, -eye], 1)
