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


def planted(folder: Path, kind: str = "span") -> Path:
    """A GLiNER (`span`, `token` or `bi`) whose weights are set so that it finds, and finds nothing else: a
    person from one of FIRST to one of LAST, in it a name (one of FIRST), and a place (one of PLACES).

    Its layers give every token back unchanged; a token's vector says which of these it is.
    """
    more: dict[str, Any] = {"span_mode": "token_level"} if kind == "token" else {}
    if kind == "bi":
        more["labels_encoder"] = str(encoder(folder / "labels", "bert"))
    path = gliner(folder, embed_ent_token=False, num_rnn_layers=0, max_width=4, **more)
    model = GLiNER.from_pretrained(str(path), local_files_only=True)
    words = model.data_processor.transformer_tokenizer.get_vocab()
    state = model.model.state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            wipes = ".layer." in name and ".output." in name and "LayerNorm" not in name
            if wipes or "position_embeddings" in name or "token_type_embeddings" in name:
                tensor.zero_()
            if name.endswith("embeddings.word_embeddings.weight"):
                tensor.copy_(one_hot(words)[: len(tensor)])
        _tokens(state) if kind == "token" else _spans(state)
    model.save_pretrained(path, safe_serialization=True)
    return path


def one_hot(words: dict[str, int]) -> torch.Tensor:
    """Embeddings that say of each token what it is: FIRST, LAST, PLACES, "the", or which label."""
    kinds = {word: kind for kind, group in enumerate((FIRST, LAST, PLACES, ("the",))) for word in group}
    kinds |= {label: 8 + place for place, label in enumerate(LABELS)}
    return torch.eye(DIM)[[kinds.get(word, 20) for word in sorted(words, key=words.__getitem__)]]


HEIGHT = (1 - 1 / DIM) / (1 / DIM - 1 / DIM**2) ** 0.5
"""Of a one among zeros, once normalised."""


def _spans(state: dict[str, torch.Tensor]) -> None:
    """A span's vector is the sum of both ends' less one, which is left only where both are right."""
    span = "span_rep_layer.span_rep_layer"
    for part in (f"{span}.project_start", f"{span}.project_end", "prompt_rep_layer"):
        unchanged(state, part)
    inner, outer = (f"{span}.out_project.{layer}" for layer in (0, 3))
    for name in (f"{inner}.weight", f"{inner}.bias", f"{outer}.weight", f"{outer}.bias"):
        state[name].zero_()
    for unit, (start, end) in enumerate([(0, 1), (0, 0), (2, 2)]):
        state[f"{inner}.weight"][unit, [start, DIM + end]] = 1 / HEIGHT
        state[f"{inner}.bias"][unit] = -1
        state[f"{outer}.weight"][8 + unit, unit] = 3 - unit / 2
        state[f"{outer}.bias"][8 + unit] = -1


def _tokens(state: dict[str, torch.Tensor]) -> None:
    """A token and a label together say that a span starts, ends or goes on there. A person may have any
    number of "the" inside."""
    eye = torch.eye(DIM)
    for part in ("proj_token", "proj_label"):
        state[f"scorer.{part}.weight"].copy_(torch.cat([eye, 0 * eye]))
        state[f"scorer.{part}.bias"].zero_()
    for name in ("0.weight", "0.bias", "3.weight", "3.bias"):
        state[f"scorer.out_mlp.{name}"].zero_()
    meant = {(0, 8): (0, 2), (1, 8): (1, 2), (3, 8): (2,), (0, 9): (0, 1, 2), (2, 10): (0, 1, 2)}
    for unit, ((token, label), says) in enumerate(meant.items()):
        state["scorer.out_mlp.0.weight"][unit, [token, DIM + label]] = 1 / HEIGHT
        state["scorer.out_mlp.0.bias"][unit] = -1.5
        state["scorer.out_mlp.3.weight"][list(says), unit] = 16 - unit
    state["scorer.out_mlp.3.bias"].fill_(-4)


def unchanged(state: dict[str, torch.Tensor], part: str) -> None:
    """A layer, a rectifier and a layer that together give back what they are given."""
    eye = torch.eye(DIM)
    for layer in (0, 3):
        state[f"{part}.{layer}.weight"].zero_()
        state[f"{part}.{layer}.bias"].zero_()
    state[f"{part}.0.weight"][: 2 * DIM] = torch.cat([eye, -eye])
    state[f"{part}.3.weight"][:, : 2 * DIM] = torch.cat([eye, -eye], 1)
