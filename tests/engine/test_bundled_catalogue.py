"""The bundled entries: each is one that its family can serve, as far as that is known without weights."""

from __future__ import annotations

import pytest

from engine import catalog
from engine.adapters import family
from engine.requests import OutputType, Task
from engine.resources import bundled
from engine.sources.conversions import CONVERSIONS

KNOWN = catalog.load([bundled("catalog")], family.names())
_OPEN = {"threshold", "thresholds", "multi_label"}
_WRITES = {"max_new_tokens", "num_beams"}
OPTIONS: dict[str, set[str]] = {
    "causal_lm": set(),
    "cross_encoder": set(),
    "detector": {"classes", "size", "threshold"},
    "document": {"artifacts_path", "ocr", "output", "pipeline", "scanned", "tables"},
    "florence2": {"task"} | _WRITES,
    "gliclass": _OPEN,
    "gliner": _OPEN
    | {"flat_ner", "relations", "relation_threshold", "adjacency_threshold", "merge_adjacent"},
    "glirel": {"threshold", "thresholds"},
    "gliner2": _OPEN | {"flat_ner", "spans"},
    "image_classifier": {"threshold", "top_k"},
    "image_encoder": {"dimensions", "normalize"},
    "image_text_encoder": {"labels", "template", "threshold", "top_k", "dimensions", "normalize"},
    "image_to_text": {"output", "task_prompt"} | _WRITES,
    "multimodal_encoder": {"max_images", "max_pixels"},
    "multimodal_reranker": {"max_images", "max_pixels"},
    "nanoguard": set(),
    "object_detector": {"threshold"},
    "open_vocabulary_detector": {"labels", "template", "threshold"},
    "page": set(),
    "page_encoder": set(),
    "spacy_ner": set(),
    "speech_recognizer": set(),
    "text_classifier": {"alarm"},
    "text_encoder": {
        *("pooling", "include_prompt", "append_token", "bidirectional", "normalize", "dimensions"),
        "adapters",
        *("sparse_pooling", "sparse_activation", "sparse_queries", "markers", "skip_punctuation"),
        *(
            "query_tokens",
            "expand_queries",
            "attend_to_expansion",
            "expansion_token",
            "score_by",
            "muvera",
            "similarity",
        ),
    },
    "token_classifier": {"aggregation", "merge", "threshold"},
    "yes_no_reranker": {"instruction", "template", "yes", "no"},
    "vision_lm": {"max_images", "max_pixels"},
    "zero_shot": _OPEN | {"hypothesis_template"},
}
"""By family, what the documentation says that an entry's options may hold."""
IMAGES = {"detector", "florence2", "image_classifier", "image_encoder", "image_text_encoder", "image_to_text"}
IMAGES |= {"object_detector", "open_vocabulary_detector", "page", "page_encoder", "vision_lm"}
IMAGES |= {"multimodal_encoder", "multimodal_reranker"}


FAMILIES = sorted({spec.family for spec in KNOWN})


def test_there_are_at_least_120_and_none_is_told_twice():
    assert len(KNOWN) >= 120
    names = [*KNOWN.models, *KNOWN.aliases]
    assert len(names) == len({name.lower() for name in names})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_does_what_its_entries_say(name):
    tasks, options = family.family(name).tasks, OPTIONS[name]
    for spec in (spec for spec in KNOWN if spec.family == name):
        assert {*spec.tasks} <= tasks, spec.id
        assert {*spec.options} <= options, spec.id
        for profile in spec.profiles.values():
            assert {*profile.options} <= options, spec.id
        assert ("image" in spec.inputs) == (name in IMAGES), spec.id


def test_what_an_entry_says_of_its_vectors_fits_together():
    for spec in KNOWN:
        assert bool(spec.outputs) == (Task.ENCODE in spec.tasks), spec.id
        assert {*spec.dims} <= {*spec.outputs}, spec.id
        assert {*spec.prompts} <= {"query", "document", "instruction", *spec.loras}, spec.id
        longest = spec.dims.get(OutputType.DENSE, 0)
        assert all(shorter < longest for shorter in spec.matryoshka), spec.id
        assert list(spec.matryoshka) == sorted(spec.matryoshka, reverse=True), spec.id


def test_whoever_chooses_a_model_is_told_what_it_is_and_under_which_licence():
    for spec in KNOWN:
        assert spec.description.endswith((".", "?")), spec.id
        assert spec.licence != "unknown" or "licence" in spec.notes, spec.id
        if spec.licence.startswith("CC-BY-NC"):
            assert "Not for commercial use." in spec.notes, spec.id
        if spec.licence.startswith(("Llama", "Gemma")):
            assert "Gated" in spec.notes, spec.id


def test_no_model_is_held_in_a_dtype_that_its_activations_leave():
    for spec in KNOWN:
        name = spec.id.lower()
        if any(kind in name for kind in ("gemma", "qwen", "modern")):
            assert spec.dtype != "float16", spec.id
        if "deberta" in name or "grounding-dino" in name:
            assert spec.dtype == "float32", spec.id


def test_sources_name_the_model_and_conversions_that_there_are():
    for spec in KNOWN:
        assert {source.hub for source in spec.sources} <= {None, spec.id}, spec.id
        assert {source.convert for source in spec.sources} <= {None, *CONVERSIONS}, spec.id
