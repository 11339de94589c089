"""The models of the demo, by their public ids."""

from __future__ import annotations

PAGE = "serai/page-markdown"
DOCUMENT = "docling-project/docling"
GUARD = "nanoguard"
ENTITIES = "spacy/en_core_web_sm"
PERSONAL = "nationaldesignstudio/rampart"
EMBED = "sentence-transformers/all-MiniLM-L6-v2"
RERANK = "cross-encoder/ms-marco-MiniLM-L-12-v2"
LOOK = "google/mobilenet_v2_1.0_224"
DETECT = "tensorflow/ssd_mobilenet_v2_coco"
WRITE = "HuggingFaceTB/SmolLM2-135M-Instruct"

CLAIM = (PAGE, DOCUMENT, GUARD, ENTITIES, PERSONAL, EMBED, RERANK, LOOK, WRITE)
INVOICE = (EMBED, RERANK, ENTITIES, WRITE)
OPTIONAL = (DETECT,)
"""Used where their weights are here; never asked for."""


def short(model: str) -> str:
    """Without whose it is: `org/name` -> `name`."""
    return model.rpartition("/")[2]
