"""How the texts of each role become vectors, as a model directory or an entry has it. Plain facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

QUERY, DOCUMENT = "query", "document"


@dataclass(frozen=True, slots=True)
class Layer:
    """One trained step after the transformer; `path` holds its weights."""

    kind: str
    """dense or layer_norm."""
    path: Path
    activation: str = "Identity"
    """The class in torch.nn."""
    residual: bool = False
    file: str = "model.safetensors"
    prefix: str = "linear."
    """Of its tensors' names in the file."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """ColBERT's query expansion: queries are filled up to `length` tokens (arXiv 2004.12832, 3.2)."""

    length: int
    attend: bool
    """Whether other tokens see those that were filled in."""
    token: str | None = None
    """None: the tokenizer's mask token."""


@dataclass(frozen=True, slots=True)
class Route:
    """How the texts of one role become vectors."""

    path: Path
    """Of the transformer or table and its tokenizer; where there is neither, of the tokenizer."""
    max_tokens: int | None = None
    lower: bool = False
    pooling: str | None = None
    """Several joined by `+` are concatenated."""
    include_prompt: bool = True
    layers: tuple[Layer, ...] = ()
    """After pooling."""
    projections: tuple[Layer, ...] = ()
    """Of each token's vector."""
    sparse_pooling: str = "max"
    sparse_activation: str = "relu"
    table: bool = False
    """Whether there is no transformer but a table with a vector for each token."""
    looked_up: bool = False
    """Whether its sparse vectors are made without a transformer."""
    static: Path | None = None
    """The weight of each term that is looked up; None: 1."""
    token_weights: Layer | None = None
    """Of sparse vectors that give each token of the text one weight (BGE-M3, arXiv 2402.03216)."""
    unit: bool = False
    """Whether the directory itself gives vectors length 1."""
    without_first: bool = False
    """Whether the first token has no vector of its own."""
    query_tokens: int | None = None
    document_tokens: int | None = None
    expansion: Expansion | None = None
    skipped: tuple[str, ...] = ()
    """Words of documents without vectors of their own."""


@dataclass(frozen=True, slots=True)
class Directory:
    routes: Mapping[str, Route]
    """For QUERY and DOCUMENT."""
    prompts: Mapping[str, str]
    markers: Mapping[str, str]
    """Tokens that stand behind the first special token of a role (ColBERT)."""
    similarity: str | None
    """cosine, dot, euclidean or manhattan."""
