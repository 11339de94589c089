"""What a model directory says of itself in the files of sentence-transformers, PyLate and ColBERT.

Read from `modules.json` and what it names; nothing is imported by the names found there. A directory
without it is one transformer.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.adapters.forward.weights import BadWeights
from engine.adapters.preparing.routes import DOCUMENT, QUERY, Directory, Expansion, Layer, Route

_MODES = {
    "cls_token": "cls",
    "lasttoken": "last",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "mean_tokens": "mean",
    "weightedmean": "weighted",
    "weightedmean_tokens": "weighted",
}
"""Names of poolings in saved configurations, where ours differ."""
_ROLES = frozenset([QUERY, DOCUMENT, "instruction"])
"""Prompts with a meaning here; those of other names are for adapters that are called so."""
_UNLIMITED = 10**9
_TABLE = "StaticEmbedding"
_TRANSFORMERS = frozenset(["MLMTransformer", "MultiVectorTransformer", "Transformer"])


def read(path: Path) -> Directory:
    """Raises BadWeights for a module that is not known here."""
    settings = _json(path / "config_sentence_transformers.json")
    stanford = _json(path / "artifact.metadata")
    routes = _routes(path)
    if stanford or any(key in settings for key in ("query_prefix", "document_prefix", "do_query_expansion")):
        colbert = stanford or settings
        routes = {role: _as_colbert(route, colbert) for role, route in routes.items()}
    routes = {role: _with_heads(route) for role, route in routes.items()}
    return Directory(
        routes, _prompts(settings), _markers(settings, stanford), settings.get("similarity_fn_name")
    )


def _routes(path: Path) -> dict[str, Route]:
    modules = _json(path / "modules.json")
    if not modules:
        bare = _json(path / "config.json").get("model_type") == "model2vec"
        return dict.fromkeys((QUERY, DOCUMENT), _of_table(path) if bare else _plain(path))
    steps = [(str(module["type"]), _inside(path, module["path"])) for module in modules]
    kinds = [_name(kind) for kind, _ in steps]
    if "Router" not in kinds and "Asym" not in kinds:
        return dict.fromkeys((QUERY, DOCUMENT), _route(path, steps))
    if kinds[0] not in ("Router", "Asym"):
        raise BadWeights(f"{path} shares a transformer between routes, which is not supported")
    router = _json(steps[0][1] / "router_config.json") or _json(steps[0][1] / "config.json")
    return {role: _route(path, _of_role(router, role, steps[0][1]) + steps[1:]) for role in (QUERY, DOCUMENT)}


def _of_role(router: Mapping[str, Any], role: str, path: Path) -> list[tuple[str, Path]]:
    structure = router.get("structure", {})
    default = router.get("parameters", {}).get("default_route") or next(iter(structure), None)
    route = role if role in structure else default
    if route not in structure:
        raise BadWeights(f"{path} routes to {', '.join(structure) or 'nothing'}; neither is for a {role}")
    return [(router["types"][step], _inside(path, step)) for step in structure[route]]


def _route(path: Path, steps: Sequence[tuple[str, Path]]) -> Route:
    (first, where), *rest = steps
    if _name(first) == "SparseStaticEmbedding":
        return Route(where, looked_up=True, static=_static(path, where))
    if _name(first) not in {*_TRANSFORMERS, _TABLE}:
        raise BadWeights(f"{path} begins with a {_name(first)}; only a Transformer can be served")
    route = _of_table(where) if _name(first) == _TABLE else _plain(where)
    pooled = route.table or any(_name(kind) == "Pooling" for kind, _ in rest)
    for kind, folder in rest:
        route = _with(route, _name(kind), folder, pooled)
    return route


def _with(route: Route, kind: str, folder: Path, pooled: bool) -> Route:
    config = _json(folder / "config.json")
    match kind:
        case "Pooling":
            include = bool(config.get("include_prompt", True))
            return replace(route, pooling=_pooling(config), include_prompt=include)
        case "Dense" | "LayerNorm":
            layer = _layer(kind, folder, config)
            of_tokens = config.get("module_input_name") == "token_embeddings" or not pooled
            if of_tokens:
                return replace(route, projections=(*route.projections, layer))
            return replace(route, layers=(*route.layers, layer))
        case "SpladePooling":
            activation = config.get("activation_function", "relu")
            return replace(
                route,
                sparse_pooling=config.get("pooling_strategy", "max"),
                sparse_activation=activation,
            )
        case "MultiVectorMask":
            return replace(route, skipped=tuple(config.get("skiplist_words") or ()))
        case "Normalize":
            return replace(route, unit=True)
        case "Dropout":
            return route
    raise BadWeights(f"{folder} is a {kind}, which is not supported")


def _layer(kind: str, folder: Path, config: Mapping[str, Any]) -> Layer:
    if not (folder / "model.safetensors").is_file():
        raise BadWeights(f"{folder} holds no model.safetensors; pickles are not read. Save it as safetensors")
    if kind == "LayerNorm":
        return Layer("layer_norm", folder, prefix="norm.")
    # a PyLate layer has none and is linear; one of sentence-transformers that says nothing is Tanh
    default = "Identity" if config.get("bias") is False else "Tanh"
    activation = _name(str(config.get("activation_function", default)))
    return Layer("dense", folder, activation, bool(config.get("use_residual")))


def _plain(path: Path) -> Route:
    config = _json(path / "sentence_bert_config.json")
    expansion = config.get("query_expansion") or {}
    fixed = expansion.get("strategy") == "fixed"
    return Route(
        path,
        max_tokens=config.get("max_seq_length") or _tokenizers_longest(path),
        lower=bool(config.get("do_lower_case")),
        query_tokens=int(expansion["length"]) if fixed else config.get("query_length"),
        document_tokens=config.get("document_length"),
        expansion=_expansion(expansion) if expansion else None,
    )


def _of_table(path: Path) -> Route:
    """A table has no positions: only model2vec says how much of a text it reads."""
    config = _json(path / "config.json")
    unit = bool(config.get("normalize"))
    return Route(path, max_tokens=config.get("max_length"), pooling="mean", unit=unit, table=True)


def _tokenizers_longest(path: Path) -> int | None:
    """Where a directory of sentence-transformers 6 has its limit; absurdly large where there is none."""
    longest = _json(path / "tokenizer_config.json").get("model_max_length")
    return int(longest) if isinstance(longest, int | float) and 0 < longest < _UNLIMITED else None


def _expansion(config: Mapping[str, Any]) -> Expansion:
    return Expansion(int(config["length"]), bool(config.get("attend")), config.get("token"))


def _as_colbert(route: Route, config: Mapping[str, Any]) -> Route:
    """PyLate's `config_sentence_transformers.json` or the `artifact.metadata` of Stanford's ColBERT."""
    length = int(config.get("query_length") or config.get("query_maxlen") or 32)
    attend = bool(config.get("attend_to_expansion_tokens") or config.get("attend_to_mask_tokens"))
    expands = config.get("do_query_expansion", True) and route.expansion is None
    words = config.get("skiplist_words")
    if words is None:
        words = string.punctuation if config.get("mask_punctuation", True) else ()
    return replace(
        route,
        query_tokens=route.query_tokens or length,
        document_tokens=route.document_tokens or config.get("document_length") or config.get("doc_maxlen"),
        expansion=Expansion(length, attend) if expands else route.expansion,
        skipped=route.skipped or tuple(words),
    )


def _with_heads(route: Route) -> Route:
    """BGE-M3's two other heads, where they lie beside the encoder."""
    sparse, colbert = (
        Layer("dense", route.path, file=f"{name}.safetensors", prefix="")
        for name in ("sparse_linear", "colbert_linear")
    )
    for head in (sparse, colbert):
        if (route.path / head.file).with_suffix(".pt").is_file() and not (route.path / head.file).is_file():
            raise BadWeights(
                f"{route.path} has its heads as pickles, which are not read; save them as "
                "sparse_linear.safetensors and colbert_linear.safetensors (docs/catalogue.md says how)"
            )
    if (route.path / sparse.file).is_file():
        route = replace(route, token_weights=sparse)
    if (route.path / colbert.file).is_file():
        route = replace(route, projections=(colbert,), without_first=True)
    return route


def _markers(settings: Mapping[str, Any], stanford: Mapping[str, Any]) -> dict[str, str]:
    if stanford:
        return {
            QUERY: stanford.get("query_token_id") or "[unused0]",
            DOCUMENT: stanford.get("doc_token_id") or "[unused1]",
        }
    given = {QUERY: settings.get("query_prefix"), DOCUMENT: settings.get("document_prefix")}
    return {role: str(prefix) for role, prefix in given.items() if prefix}


def _prompts(settings: Mapping[str, Any]) -> dict[str, str]:
    saved = settings.get("prompts") or {}
    default = saved.get(settings.get("default_prompt_name") or "", "")
    names = {
        QUERY: (QUERY, "retrieval.query"),
        DOCUMENT: (DOCUMENT, "passage", "corpus", "retrieval.passage"),
    }
    found = {role: next((saved[n] for n in keys if saved.get(n)), default) for role, keys in names.items()}
    others = {str(name): str(prompt) for name, prompt in saved.items() if name not in _ROLES}
    return others | {role: prompt for role, prompt in found.items() if prompt}


def _pooling(config: Mapping[str, Any]) -> str:
    modes = config.get("pooling_mode")
    if modes is None:
        flags = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")
        modes = [flag for flag in (*flags, "lasttoken") if config.get(f"pooling_mode_{flag}")] or ["mean"]
    return "+".join(_MODES.get(mode, mode) for mode in ([modes] if isinstance(modes, str) else modes))


def _static(path: Path, where: Path) -> Path:
    config = _json(where / "config.json")
    named = config.get("path")
    places = [where / "model.safetensors", where / "idf.json", path / "idf.json"]
    if named:
        places = [_inside(where, named), _inside(path, named), *places]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise BadWeights(f"{where} holds neither model.safetensors nor idf.json")
    return found


def _name(kind: str) -> str:
    return kind.rsplit(".", 1)[-1]


def _inside(path: Path, named: str) -> Path:
    """A part of the directory. Raises BadWeights for a name that leads out of it."""
    if Path(named).is_absolute() or ".." in Path(named).parts:
        raise BadWeights(f"{path} names files outside its directory: {named}")
    return path / named


def _json(file: Path) -> Any:
    """What the file holds, empty when there is no such file. Raises BadWeights when it is no JSON."""
    try:
        return json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadWeights(f"{file} cannot be read: {error}") from error
