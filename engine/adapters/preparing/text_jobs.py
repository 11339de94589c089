"""Texts and what is asked of them, as jobs: the tokenised half of the text encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.adapters.family import Prepared
from engine.adapters.forward import layers, table, weights
from engine.adapters.forward.muvera import OPTION, Muvera, muvera
from engine.adapters.forward.packed import Ids
from engine.adapters.forward.pooling import POOLINGS, known
from engine.adapters.forward.quantize import DTYPES
from engine.adapters.forward.similarity import SIMILARITIES
from engine.adapters.preparing.kinds import sigmoid
from engine.adapters.preparing.lookup import Lookup
from engine.adapters.preparing.reading import Read, Reader, is_words
from engine.adapters.preparing.routes import DOCUMENT, QUERY, Directory, Route
from engine.adapters.preparing.served import roles, served
from engine.adapters.preparing.tokens import TextTokenizer
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import EncodeOptions, Item, Options, OutputType, ScoreOptions, Sparse, Task, Usage

MAXSIM = "maxsim"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job asks of the forward pass; none of it changes the pass."""

    outputs: tuple[OutputType, ...]
    pooling: str
    normalize: bool
    dimensions: int | None
    dtype: str
    sparse_pooling: str = "max"
    sparse_activation: str = "relu"


@dataclass(frozen=True, slots=True)
class EncodeJob:
    ids: Ids
    counted: NDArray[np.bool_] | None
    """Multivector: which tokens have a vector in the answer; None for all."""
    wanted: Wanted
    role: str = DOCUMENT
    """Which of the model's transformers reads it, where it has two."""
    seen: int = 0
    """So many first tokens are attended to."""
    skipped: int = 0
    """So many first tokens are left out of pooling."""
    words: NDArray[np.bool_] | None = None
    """Where the model weighs tokens: which have a weight in the answer."""
    looked_up: Sparse | None = None
    """The answer itself, of a role that needs no transformer."""
    lora: str | None = None
    """The adapter that reads it."""


@dataclass(frozen=True, slots=True)
class MatchJob:
    """A document that is compared with a query. Documents of one request share the query's job."""

    query: EncodeJob
    document: EncodeJob
    similarity: str
    sigmoid: bool


def outputs_of(spec: ModelSpec) -> tuple[OutputType, ...]:
    return spec.outputs or (OutputType.DENSE,)


@dataclass(frozen=True, slots=True)
class _Role:
    """What one role has of its own."""

    reader: Reader
    route: Route
    dims: int
    skipped: Ids | None
    special: Ids
    lookup: Lookup | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one call asks of texts in one role."""

    role: str
    wanted: Wanted
    lora: str | None
    made: _Role = field(repr=False)


class TextPreparer:
    """Tokenises, and says early what the model cannot do."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        stored = served(spec, path)
        self._spec = spec
        self._similarity = stored.similarity
        self._adapters = roles(spec)
        tokenizers: dict[Path, TextTokenizer] = {}
        for route in stored.routes.values():
            if route.path not in tokenizers:
                tokenizers[route.path] = TextTokenizer(route.path)
        self._roles = {
            role: _role(spec, stored, role, tokenizers[route.path]) for role, route in stored.routes.items()
        }
        self.cutter = self._roles[DOCUMENT].reader.tokenizer.cutter

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if isinstance(options, ScoreOptions):
            return self._matches(items, options)
        assert isinstance(options, EncodeOptions), "the router sends encode and score requests only"
        role = QUERY if options.is_query else DOCUMENT
        asked = self._asked(role, options)
        found = self._roles[role].reader.read(items, options.instruction, options.overflow, options.lora)
        return [each if isinstance(each, EngineError) else _prepared(asked, each) for each in found]

    def _matches(self, items: Sequence[Item], options: ScoreOptions) -> list[Prepared | EngineError]:
        """A job for each document; its cost is that of reading the query and the document."""
        chances = sigmoid(self._spec, options)
        usual = OutputType.MULTIVECTOR if self._spec.options.get(OPTION) else outputs_of(self._spec)[0]
        kind = OutputType(self._spec.options.get("score_by", usual))
        similarity = self._compared_by(kind)
        # a vector's length does not matter to a cosine, and is part of what other measures are about
        unit = similarity in (MAXSIM, "cosine") or self._roles[DOCUMENT].route.unit
        encode = EncodeOptions((kind,), overflow=options.overflow, normalize=unit, lora=options.lora)
        query, document = self._asked(QUERY, encode), self._asked(DOCUMENT, encode)
        read = query.made.reader.query(options.query, options.instruction, options.overflow, options.lora)
        question = _job(query, read)
        found = document.made.reader.read(items, None, options.overflow, options.lora)
        return [
            each
            if isinstance(each, EngineError)
            else _match(question, read, _prepared(document, each), similarity, chances)
            for each in found
        ]

    def _compared_by(self, kind: OutputType) -> str:
        if kind is OutputType.MULTIVECTOR:
            return MAXSIM
        return self._similarity or ("dot" if kind is OutputType.SPARSE else "cosine")

    def _asked(self, role: str, options: EncodeOptions) -> _Asked:
        """Raises InvalidInput for what the model cannot do in this role."""
        made, spec = self._roles[role], self._spec
        able = outputs_of(spec)
        outputs = tuple(dict.fromkeys(options.output_types)) or able[:1]
        if made.lookup is not None:
            able = (OutputType.SPARSE,)
        dims = sorted({made.dims, *spec.matryoshka})
        stored = made.route.pooling or "mean"
        pooling = options.pooling or stored
        fits = known(pooling) and (not made.route.layers or pooling.count("+") == stored.count("+"))
        checks = [("output_type", o.value, o in able, [kind.value for kind in able]) for o in outputs] + [
            ("output_dtype", options.output_dtype, options.output_dtype in DTYPES, DTYPES),
            ("pooling", pooling, fits, POOLINGS),
        ]
        dimensions = options.dimensions or spec.options.get("dimensions")
        if options.dimensions is not None or dimensions is not None:
            may = dimensions in dims and (OutputType.DENSE in outputs or options.dimensions is None)
            checks.append(("dimensions", str(dimensions), may, [f"{n} (dense)" for n in dims]))
        for option, value, possible, choices in checks:
            if not possible:
                can = ", ".join(map(str, choices))
                raise InvalidInput(f"{spec.id} cannot do {option} {value!r}; it can do: {can}")
        normal = options.normalize if options.normalize is not None else spec.options.get("normalize")
        wanted = Wanted(
            outputs,
            pooling,
            spec.normalize if normal is None else bool(normal),
            dimensions,
            options.output_dtype,
            made.route.sparse_pooling,
            made.route.sparse_activation,
        )
        return _Asked(role, wanted, options.lora or self._adapters.get(role), made)


def _role(spec: ModelSpec, stored: Directory, role: str, tokenizer: TextTokenizer) -> _Role:
    route = stored.routes[role]
    reader = Reader(spec, stored, role, tokenizer)
    special = np.array([tokenizer.id_of(token) for token in tokenizer.special.others], np.int32)
    skips = role == DOCUMENT and route.skipped and OutputType.MULTIVECTOR in outputs_of(spec)
    skipped = reader.skipped() if skips else None
    if route.looked_up:
        size = spec.dims.get(OutputType.SPARSE) or reader.vocabulary
        return _Role(reader, route, 0, skipped, special, Lookup.of(route.static, size, tokenizer))
    config = table.described(route)
    return _Role(reader, route, dense_dims(spec, route, config), skipped, special)


def token_dims(route: Route, config: Mapping[str, object]) -> int:
    """Numbers in the vector of one token."""
    return layers.width(layers.projections(route), hidden_size(config))


def fixed(spec: ModelSpec, route: Route, config: Mapping[str, object]) -> Muvera | None:
    """What makes dense vectors of a multivector, where the entry wants that. Raises BadWeights."""
    return muvera(spec, token_dims(route, config)) if spec.options.get(OPTION) else None


def dense_dims(spec: ModelSpec, route: Route, config: Mapping[str, object]) -> int:
    """Numbers in a dense vector of this route."""
    if made := fixed(spec, route, config):
        return made.size
    modes = (route.pooling or "mean").count("+") + 1
    return layers.width(route.layers, hidden_size(config) * modes)


def check_dims(spec: ModelSpec, route: Route) -> Mapping[str, Any]:
    """The configuration. Raises BadWeights where the entry says other dims: clients are told those."""
    config = table.described(route)
    made = {
        OutputType.DENSE: dense_dims(spec, route, config),
        OutputType.SPARSE: config.get("vocab_size"),
        OutputType.MULTIVECTOR: token_dims(route, config),
    }
    for kind, said in spec.dims.items():
        if made[kind] not in (None, said):
            raise weights.BadWeights(f"the entry says dims {{{kind}: {said}}}; the model makes {made[kind]}")
    return config


def hidden_size(config: Mapping[str, object]) -> int:
    """Numbers in the vector of a token. Raises BadWeights where config.json does not say."""
    for key in ("hidden_size", "dim", "d_model", "n_embd"):
        if config.get(key):
            return int(str(config[key]))
    raise weights.BadWeights("config.json does not say how large its vectors are (hidden_size)")


def _job(asked: _Asked, read: Read) -> EncodeJob:
    made, ids = asked.made, read.ids
    if made.lookup is not None:
        return EncodeJob(ids, None, asked.wanted, asked.role, looked_up=made.lookup.vector(ids))
    counted = None if made.skipped is None else ~np.isin(ids, made.skipped)
    if made.route.without_first:
        counted = np.ones(len(ids), np.bool_) if counted is None else counted
        counted[0] = False
    words = is_words(ids, read.own, made.special) if made.route.token_weights else None
    return EncodeJob(ids, counted, asked.wanted, asked.role, read.seen, read.prompt, words, lora=asked.lora)


def _prepared(asked: _Asked, read: Read) -> Prepared:
    usage = Usage(input_tokens=len(read.ids), truncated=int(read.cut))
    return Prepared(max(1, len(read.ids)), _job(asked, read), read.ids.nbytes, usage)


def _match(query: EncodeJob, read: Read, document: Prepared, similarity: str, sigmoid: bool) -> Prepared:
    tokens = len(query.ids) + document.cost
    usage = Usage(input_tokens=tokens, truncated=int(read.cut) + document.usage.truncated)
    job = MatchJob(query, document.payload, similarity, sigmoid)
    return Prepared(tokens, job, document.nbytes + query.ids.nbytes, usage)


def check_similarity(stored: Directory) -> None:
    """Raises BadWeights for one that is not known here."""
    named = stored.similarity
    if named is not None and named not in (*SIMILARITIES, MAXSIM):
        raise weights.BadWeights(f"no similarity {named!r}; there are: {', '.join(SIMILARITIES)}")
