"""GLiREL directories of random weights, and what the library says of them: `tests/data/glirel.json`.

The library asks for packages that nothing else here needs, so its numbers are kept. To make them again,
where `glirel` 1.2.1, `loguru` and `seqeval` can be imported:

    python -m tests.engine.adapters.tiny_glirel > tests/data/glirel.json
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from safetensors.torch import save_file
from torch import Tensor

from tests.engine.adapters.tiny_encoder import encoder

KEPT = Path(__file__).parents[2] / "data/glirel.json"
HIDDEN = 64
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"scorer": "dot"},
    "refined": {"scorer": "dot_norm", "refine_relation": True, "refine_prompt": True},
    "label": {"scorer": "dot_thresh", "label_embed_strategy": "label", "subtoken_pooling": "mean"},
    "means": {
        "scorer": "concat_proj",
        "label_embed_strategy": "both",
        "span_marker_mode": "markerv2",
        "subtoken_pooling": "last",
        "max_entity_pair_distance": 3,
    },
}
LABELS = ["works for", "lives in", "x"]
TEXTS = ["Anna Smith lives in Ulm since 1999.", "Zork-Blim and Drum: the word on Oslo, in Ulm"]
ENTITIES = [[(0, 10), (20, 23), (30, 34)], [(36, 40), (0, 9), (14, 18), (24, 28)]]


def config(kind: str, encoder_at: Path) -> dict[str, Any]:
    given = {
        "model_name": str(encoder_at),
        "hidden_size": HIDDEN,
        "fine_tune": False,
        "subtoken_pooling": "first",
        "rel_mode": "marker",
        "span_marker_mode": "markerv1",
        "label_embed_strategy": "ent_token",
        "max_width": 4,
        "max_len": 384,
        "max_entity_pair_distance": None,
        "dropout": 0.1,
        "ffn_mul": 2,
        "fixed_relation_types": True,
    }
    return given | KINDS[kind]


def drawn(shapes: dict[str, list[int]]) -> dict[str, Tensor]:
    """Weights by their names, the same wherever they are drawn."""
    draw = torch.Generator().manual_seed(5)
    found = {}
    for name in sorted(shapes):
        shape = shapes[name]
        width = shape[-1] ** -0.5 if len(shape) > 1 else 0.2
        width *= 0.2 if name.endswith("output.weight") else 1.0  # chances that are neither 0 nor 1
        ones = len(shape) == 1 and ("norm" in name.lower()) and name.endswith("weight")
        found[name] = 1.1 * width * torch.randn(shape, generator=draw) + float(ones)
    return found


def directory(kind: str, folder: Path, shapes: dict[str, list[int]]) -> Path:
    """As its authors publish it, with safetensors; the encoder lies beside."""
    path = folder / "model"
    encoder(path / "encoder", "bert")
    (path / "glirel_config.json").write_text(json.dumps(config(kind, path / "encoder")))
    save_file(drawn(shapes), path / "model.safetensors")
    return path


def _made(kind: str, folder: Path) -> dict[str, Any]:
    """What the library finds: for each text a list of head and tail (places of entities), label and score."""
    from glirel import GLiREL

    encoder(folder / kind, "bert")
    model = GLiREL(argparse.Namespace(**config(kind, folder / kind))).eval()
    shapes = {
        name: list(tensor.shape) for name, tensor in model.state_dict().items() if tensor.is_floating_point()
    }
    model.load_state_dict(drawn(shapes), strict=False)
    answers = []
    for text, entities in zip(TEXTS, ENTITIES, strict=True):
        words = [(m.start(), m.end()) for m in re.finditer(r"\w+(?:[-_]\w+)*|\S", text)]
        places = [
            [
                next(n for n, (_, stop) in enumerate(words) if stop > start),
                max(n for n, (begin, _) in enumerate(words) if begin < end),
            ]
            for start, end in entities
        ]
        given = [
            [first, last, "X", text[start:end]]
            for (first, last), (start, end) in zip(places, entities, strict=True)
        ]
        tokens = [text[start:end] for start, end in words]
        found = model.predict_relations(tokens, LABELS, threshold=0.0, ner=given, top_k=-1)
        answers.append(
            [
                [
                    places.index([r["head_pos"][0], r["head_pos"][1] - 1]),
                    places.index([r["tail_pos"][0], r["tail_pos"][1] - 1]),
                    r["label"],
                    round(r["score"], 7),
                ]
                for r in found
            ]
        )
    return {"shapes": shapes, "answers": answers}


if __name__ == "__main__":
    tf.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        json.dump({kind: _made(kind, Path(folder)) for kind in KINDS}, sys.stdout, separators=(",", ":"))
