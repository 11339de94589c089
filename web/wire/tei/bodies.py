"""The bodies of TEI's routes, read into what the engine is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct

from engine.errors import InputTooLong, InvalidInput
from engine.requests import EncodeOptions, ExtractOptions, Item, OutputType, Overflow, ScoreOptions
from web.dialects.tei import Empty
from web.wire import texts
from web.wire.bodies import Asked, adapter_elsewhere
from web.wire.decoding import Body, decode
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.tei.inputs import Cutting, Id, Inputs, Sequences, count, items, sequences

MAX_TOKENIZED = 2**18
"""Bytes of text whose tokens are shown at once: what is said of one token takes some seventy."""

T = TypeVar("T", bound=Struct)
Texts = Annotated[list[str], Meta(max_length=2**18)]


class SparseBody(Cutting, kw_only=True):
    inputs: Inputs
    prompt_name: str | None = None


class EmbedBody(SparseBody, kw_only=True):
    normalize: bool = True
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    encoding_format: Literal["float"] | None = None


class RerankBody(Cutting, kw_only=True):
    """`prompt_name` is not TEI's here: an adapter of the model."""

    query: str
    texts: Texts
    raw_scores: bool = False
    return_text: bool = False
    prompt_name: str | None = None


class PredictBody(Cutting, kw_only=True):
    """`prompt_name` is not TEI's here: an adapter of the model."""

    inputs: Sequences
    raw_scores: bool = False
    prompt_name: str | None = None


class TokenizeBody(Struct):
    inputs: str | Texts
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeBody(Struct):
    ids: Annotated[list[Id | Annotated[list[Id], Meta(max_length=2**18)]], Meta(max_length=2**18)]
    skip_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class Embedding(Asked):
    """`prompt_name` is for whoever knows the model's prompts."""

    prompt_name: str | None = None


@dataclass(frozen=True, slots=True)
class Reranking(Asked):
    return_text: bool = False
    prompt_name: str | None = None


@dataclass(frozen=True, slots=True)
class Predicting(Asked):
    """Each item is a sequence, or the second text of a pair. The options are those of a classifier."""

    queries: tuple[str, ...] = ()
    """The first text of each pair; none when the sequences are single texts."""
    alone: bool = False
    raw_scores: bool = False
    prompt_name: str | None = None

    def scoring(self, query: str, lora: str | None) -> ScoreOptions:
        """For a model that reads pairs and scores them, with that adapter."""
        overflow = self.options.overflow if isinstance(self.options, ExtractOptions) else Overflow.DEFAULT
        activation = _activation(self.raw_scores)
        return ScoreOptions(Item(text=query), activation=activation, overflow=overflow, lora=lora)


@dataclass(frozen=True, slots=True)
class Tokenizing(Asked):
    """Texts to be cut, or ids to be spelled; the options say nothing."""

    special: bool = True


def embed(body: Body, form: Form, limits: Limits) -> Embedding:
    read = _read(body, form, EmbedBody)
    options = EncodeOptions(
        output_types=(OutputType.DENSE,),
        normalize=read.normalize,
        dimensions=read.dimensions,
        overflow=read.overflow,
    )
    return Embedding(items(read.inputs, limits), options, prompt_name=read.prompt_name)


def embed_all(body: Body, form: Form, limits: Limits) -> Embedding:
    return _unpooled(body, form, limits, OutputType.MULTIVECTOR)


def embed_sparse(body: Body, form: Form, limits: Limits) -> Embedding:
    return _unpooled(body, form, limits, OutputType.SPARSE)


def rerank(body: Body, form: Form, limits: Limits) -> Reranking:
    read = _read(body, form, RerankBody)
    count(read.texts, limits, "texts")
    query = texts.item(read.query, limits, "query")
    options = ScoreOptions(query, activation=_activation(read.raw_scores), overflow=read.overflow)
    found = texts.items(read.texts, limits, "texts")
    return Reranking(found, options, return_text=read.return_text, prompt_name=read.prompt_name)


def predict(body: Body, form: Form, limits: Limits) -> Predicting:
    read = _read(body, form, PredictBody)
    found, alone = sequences(read.inputs, limits)
    if len({len(sequence) for sequence in found}) > 1:
        raise InvalidInput("inputs has single texts and pairs; send them apart.")
    firsts = tuple(sequence[0] for sequence in found if len(sequence) == 2)
    texts.items(firsts, limits, "inputs")
    return Predicting(
        texts.items([sequence[-1] for sequence in found], limits, "inputs"),
        ExtractOptions(overflow=read.overflow, extra={"raw_scores": True} if read.raw_scores else {}),
        queries=firsts,
        alone=alone,
        raw_scores=read.raw_scores,
        prompt_name=read.prompt_name,
    )


def tokenize(body: Body, form: Form, limits: Limits) -> Tokenizing:
    """Raises InputTooLong beyond `MAX_TOKENIZED` bytes of all texts together."""
    read = _read(body, form, TokenizeBody)
    inputs = [read.inputs] if isinstance(read.inputs, str) else read.inputs
    count(inputs, limits, "inputs")
    if (size := sum(len(text.encode()) for text in inputs)) > MAX_TOKENIZED:
        raise InputTooLong(f"inputs, all together, has {size} bytes; at most {MAX_TOKENIZED} are taken.")
    return Tokenizing(texts.items(inputs, limits, "inputs"), EncodeOptions(), special=read.add_special_tokens)


def detokenize(body: Body, form: Form, limits: Limits) -> Tokenizing:
    read = _read(body, form, DecodeBody)
    if not read.ids:
        raise Empty("`ids` cannot be empty")
    return Tokenizing(items(list(read.ids), limits), EncodeOptions(), special=not read.skip_special_tokens)


def _unpooled(body: Body, form: Form, limits: Limits, kind: OutputType) -> Embedding:
    read = _read(body, form, SparseBody)
    options = EncodeOptions(output_types=(kind,), overflow=read.overflow)
    return Embedding(items(read.inputs, limits), options, prompt_name=read.prompt_name)


def _read(body: Body, form: Form, kind: type[T]) -> T:
    texts.only_json(form)
    read = decode(body, form, kind)
    adapter_elsewhere(body, form, "prompt_name")
    return read


def _activation(raw: bool) -> str:
    return "raw" if raw else "sigmoid"
