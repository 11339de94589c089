"""The starter models as load tests use them live: what each is asked, and what it weighs."""

from __future__ import annotations

from engine import catalog
from engine.adapters.family import family
from engine.resources import bundled
from tests.acceptance.asking import MINILM, NER, PII, RERANKER, Call, encode, extract, score
from tests.weights import test_sources

BGE = "BAAI/bge-small-en-v1.5"
SPLADE = "serai/splade-tiny-msmarco"
COLBERT = "answerdotai/answerai-colbert-small-v1"
E5 = "intfloat/multilingual-e5-small"

MODELS = (MINILM, RERANKER, NER, BGE, PII, COLBERT, SPLADE, E5)
"""The one most asked for first."""

SENTENCE = "Parcel {} for Jane Miller of Northwind Logistics went to the harbour on 14 March 2026."


def call(model: str, number: int) -> Call:
    """A request of a sentence or two that only this number has."""
    text = SENTENCE.format(number)
    if model == RERANKER:
        return score("Where did the parcel go?", text, "The cafeteria opens at eight.")
    if model == NER:
        return extract(text)
    if model == PII:
        return extract(text, model=PII)
    return encode(text, model=model)


def weights_bytes() -> dict[str, int]:
    """Of each of `MODELS`, as the ledger will count them."""
    entries, sources = catalog.load([bundled("catalog")]), test_sources()
    specs = [entries.models[model] for model in MODELS]
    return {s.id: family(s.family).footprint(s, sources.locate(s)).weights_bytes for s in specs}
