"""Which family serves a repository, told by the architecture that its config.json names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.adapters.forward import dialects
from engine.adopting.repository import Repository
from engine.errors import InvalidInput
from engine.requests import OutputType, Task

ENCODERS = frozenset(
    [
        *("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "ernie"),
        *("eurobert", "gte", "jina_embeddings_v3", "modernbert", "mpnet", "new", "nomic_bert"),
        *("roberta", "xlm-roberta"),
    ]
)
_EMBEDS = frozenset(["feature-extraction", "sentence-similarity", "visual-document-retrieval"])
"""What cards call the task of a model that makes vectors."""
OWN = frozenset([dialects.JINA_BERT, dialects.NOMIC_MOE])
"""Encoders that have no heads for tokens or words here."""
DECODERS = frozenset(["gemma", "gemma3_text", "llama", "mistral", "qwen2", "qwen3"])
WRITERS = (DECODERS - {"gemma"}) | {"gemma2", "granite", "olmo2", "phi3", "smollm3"}
DETECTORS = frozenset(["d_fine", "detr", "rt_detr", "rt_detr_v2", "yolos"])
WORDED = frozenset(["grounding-dino", "owlv2", "owlvit"])
PICTURES = frozenset(["convnext", "convnextv2", "deit", "dinov2", "mobilenet_v2", "resnet", "swin", "vit"])
TOGETHER = frozenset(["clip", "siglip", "siglip2"])
PAGES = frozenset(["colmodernvbert", "colpali", "colqwen2"])
SEEING = frozenset(
    [
        *("gemma3", "glm_ocr", "idefics3", "internvl", "lighton_ocr", "llava", "llava_next"),
        *("llava_onevision", "mistral3", "paddleocr_vl", "paligemma", "qwen2_5_vl", "qwen2_vl", "qwen3_vl"),
        "smolvlm",
    ]
)


@dataclass(frozen=True, slots=True)
class Served:
    """A family, and what it is asked for."""

    family: str
    tasks: tuple[Task, ...] = (Task.EXTRACT,)
    outputs: tuple[OutputType, ...] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Of the entry, where this family needs others than the schema's defaults."""


def served(repository: Repository) -> Served:
    """Raises InvalidInput, with what there is, for an architecture that no family here serves."""
    if "gliner_config.json" in repository.files:
        return Served("gliner", keys={"overflow": "window"})
    if "glirel_config.json" in repository.files:
        return Served("glirel", keys={"overflow": "window"})
    kind = _translated(repository)
    if vectors := _of_directory(repository):
        return vectors
    config = repository.config
    if not config:
        raise InvalidInput(f"{repository.name} has no config.json, so nobody can say what it is.")
    if _kind(config) == "extractor" and config.get("architecture") in (None, "span", "boundary"):
        return Served("gliner2", keys={"overflow": "window"})
    architecture = str(next(iter(config.get("architectures") or ()), ""))
    for ending, choose in _BY_ENDING.items():
        if architecture.endswith(ending) and (found := choose(repository, kind)):
            return found
    raise InvalidInput(
        f"{repository.name} is a {architecture or 'model of no architecture'} of the type {_kind(config)!r}, "
        "which no family here serves. docs/catalogue.md, docs/extraction.md and docs/vision.md say what is."
    )


def _kind(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type", ""))


def _translated(repository: Repository) -> str:
    """What its network is here; code of its own is not run. Raises InvalidInput for a variant not served."""
    try:
        return _kind(dialects.translated(repository.config))
    except ValueError as error:
        raise InvalidInput(f"{repository.name} cannot be served: {error}.") from None


def _of_directory(repository: Repository) -> Served | None:
    """Directories of sentence-transformers, PyLate and Stanford's ColBERT say what they make."""
    kinds = [kind for kind, _ in repository.modules]
    if _kind(repository.config) == "qwen3_vl" and repository.card.get("pipeline_tag") == "text-ranking":
        return Served("multimodal_reranker", (Task.SCORE,), keys={"inputs": ["text", "image"]})
    embeds = "Pooling" in kinds or repository.card.get("pipeline_tag") in _EMBEDS
    if embeds and _kind(repository.config) == "qwen3_vl":
        tasks, keys = (Task.ENCODE, Task.SCORE), {"inputs": ["text", "image"]}
        return Served("multimodal_encoder", tasks, (OutputType.DENSE,), keys)
    settings = repository.of("config_sentence_transformers.json")
    if "LogitScore" in kinds:
        return _asked(repository, _kind(repository.config))
    late = settings.get("similarity_fn_name") == "MaxSim" or "query_prefix" in settings
    if late or "artifact.metadata" in repository.files:
        return Served("text_encoder", (Task.ENCODE, Task.SCORE), (OutputType.MULTIVECTOR,))
    if {"SpladePooling", "SparseStaticEmbedding"} & {*kinds}:
        return Served("text_encoder", (Task.ENCODE,), (OutputType.SPARSE,))
    if kinds[:1] == ["StaticEmbedding"] or _kind(repository.config) == "model2vec":
        tasks, keys = (Task.ENCODE, Task.SCORE), {"devices": ["cpu", "cuda"]}
        return Served("text_encoder", tasks, (OutputType.DENSE,), keys)
    if "Pooling" in kinds:
        return Served("text_encoder", (Task.ENCODE,), (OutputType.DENSE,))
    return None


def _sequence(repository: Repository, kind: str) -> Served | None:
    labels = labels_of(repository.config)
    if any(label.startswith("entail") for label in labels) and len(labels) > 1:
        return Served("zero_shot", keys={"overflow": "window"}) if kind in ENCODERS | {"bart"} else None
    if kind not in ENCODERS | DECODERS | {dialects.JINA_BERT}:
        return None
    if len(labels) == 1:
        return Served("cross_encoder", (Task.SCORE,))
    return Served("text_classifier", keys={"overflow": "window"})


def labels_of(config: Mapping[str, Any]) -> list[str]:
    """In lower case. transformers writes none where there are two that nobody named."""
    named = config.get("id2label")
    if isinstance(named, dict) and named:
        return [str(label).lower() for label in named.values()]
    return [f"label_{number}" for number in range(int(config.get("num_labels") or 2))]


def _tokens(repository: Repository, kind: str) -> Served | None:
    return Served("token_classifier", keys={"overflow": "window"}) if kind in ENCODERS else None


def _writer(repository: Repository, kind: str) -> Served | None:
    if repository.card.get("pipeline_tag") == "text-ranking":
        return _asked(repository, kind) if kind in DECODERS else None
    limits = {"max_batch_cost": 512, "max_running": 16, "max_slots": 1}
    return Served("causal_lm", (Task.GENERATE,), keys={"limits": limits}) if kind in WRITERS else None


def _asked(repository: Repository, kind: str) -> Served:
    """A reranking decoder. How it is asked stands in no paper: Qwen3-Reranker's way is known by its kind."""
    if kind != "qwen3":
        raise InvalidInput(
            f"{repository.name} is a {kind} that ranks texts by its next word, and its files do not say how "
            "it is asked. Write an entry with options.template, yes and no: docs/catalogue.md, "
            "yes_no_reranker."
        )
    return Served("yes_no_reranker", (Task.SCORE,))


def _seeing(repository: Repository, kind: str) -> Served | None:
    limits = {"max_batch_cost": 512, "max_running": 16, "max_slots": 1}
    keys = {"inputs": ["text", "image"], "limits": limits}
    return Served("vision_lm", (Task.GENERATE,), keys=keys) if kind in SEEING else None


def _pages(repository: Repository, kind: str) -> Served | None:
    keys = {"inputs": ["text", "image"]}
    tasks = (Task.ENCODE, Task.SCORE)
    return Served("page_encoder", tasks, (OutputType.MULTIVECTOR,), keys) if kind in PAGES else None


def _words(repository: Repository, kind: str) -> Served | None:
    """A masked language model is a sparse encoder only where its card says so."""
    tags = {str(tag).lower() for tag in repository.card.get("tags") or ()}
    sparse = tags & {"splade", "sparse", "sparse-encoder"}
    return (
        Served("text_encoder", (Task.ENCODE,), (OutputType.SPARSE,)) if sparse and kind in ENCODERS else None
    )


def _bare(repository: Repository, kind: str) -> Served | None:
    """A model without a head."""
    if kind in ENCODERS | OWN:
        return Served("text_encoder", (Task.ENCODE,), (OutputType.DENSE,))
    if kind in TOGETHER:
        tasks = (Task.ENCODE, Task.SCORE, Task.EXTRACT)
        return Served("image_text_encoder", tasks, (OutputType.DENSE,), {"inputs": ["text", "image"]})
    if kind in PICTURES:
        pooling = {"pooling": "cls"} if kind in ("dinov2", "vit") else {}
        return Served("image_encoder", (Task.ENCODE,), (OutputType.DENSE,), {"inputs": ["image"], **pooling})
    return None


def _of_pictures(family: str, kinds: frozenset[str]) -> Callable[[Repository, str], Served | None]:
    return lambda _, kind: Served(family, keys={"inputs": ["image"]}) if kind in kinds else None


def _objects(repository: Repository, kind: str) -> Served | None:
    family = "open_vocabulary_detector" if kind in WORDED else "object_detector"
    return Served(family, keys={"inputs": ["image"]}) if kind in WORDED | DETECTORS else None


_BY_ENDING: Mapping[str, Callable[[Repository, str], Served | None]] = {
    "ForSequenceClassification": _sequence,
    "ForTokenClassification": _tokens,
    "ForCausalLM": _writer,
    "ForMaskedLM": _words,
    "ForImageClassification": _of_pictures("image_classifier", PICTURES),
    "ForObjectDetection": _objects,
    "VisionEncoderDecoderModel": _of_pictures("image_to_text", frozenset(["vision-encoder-decoder"])),
    "Florence2ForConditionalGeneration": _of_pictures("florence2", frozenset(["florence2"])),
    "WhisperForConditionalGeneration": lambda *_: Served("speech_recognizer", keys={"inputs": ["audio"]}),
    "ForConditionalGeneration": _seeing,
    "ForRetrieval": _pages,
    "GLiClassModel": lambda *_: Served("gliclass", keys={"overflow": "window"}),
    "Model": _bare,
}
"""By how the name of the architecture ends; the first that fits."""
