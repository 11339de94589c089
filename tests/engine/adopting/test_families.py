"""Every architecture that a family here serves is told by its config.json, and others are refused."""

from __future__ import annotations

import pytest
from transformers.models.auto import modeling_auto as auto

from engine.adapters import family
from engine.adapters.forward.heads import CLASSIFIERS
from engine.adapters.forward.packed import PACKED
from engine.adapters.generation import eyes
from engine.adapters.open_vocabulary_detector import KINDS
from engine.adapters.page_encoder import PROCESSORS
from engine.adopting import families
from engine.adopting.families import (
    DECODERS,
    DETECTORS,
    ENCODERS,
    PICTURES,
    SEEING,
    TOGETHER,
    WORDED,
    WRITERS,
    served,
)
from engine.adopting.repository import Repository
from engine.errors import InvalidInput
from engine.requests import OutputType
from tests.engine.adopting.repositories import BERT

NLI = {"0": "entailment", "1": "neutral", "2": "contradiction"}
BARE = auto.MODEL_MAPPING_NAMES | {"gte": "GteModel", "new": "NewModel"}


def of(architecture: str, kind: str, card: dict | None = None, **config: object) -> str:
    held = {"architectures": [architecture], "model_type": kind, **config}
    return served(Repository("org/it", {"config.json": held}, (), card or {})).family


@pytest.mark.parametrize("kind", sorted(ENCODERS))
def test_an_encoder_is_told_by_its_head(kind):
    name = BARE[kind].removesuffix("Model")

    assert of(BARE[kind], kind) == "text_encoder"
    assert of(f"{name}ForSequenceClassification", kind, id2label={"0": "LABEL_0"}) == "cross_encoder"
    assert of(f"{name}ForSequenceClassification", kind, id2label=NLI) == "zero_shot"
    assert of(f"{name}ForSequenceClassification", kind, id2label={"0": "A", "1": "B"}) == "text_classifier"
    assert of(f"{name}ForSequenceClassification", kind) == "text_classifier"
    assert of(f"{name}ForTokenClassification", kind) == "token_classifier"
    assert of(f"{name}ForMaskedLM", kind, {"tags": ["sparse-encoder"]}) == "text_encoder"
    with pytest.raises(InvalidInput, match="which no family here serves"):
        of(f"{name}ForMaskedLM", kind)


@pytest.mark.parametrize("kind", sorted(SEEING))
def test_a_model_that_sees_is_told_by_its_type(kind):
    assert of(auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[kind], kind) == "vision_lm"
    with pytest.raises(InvalidInput, match="which no family here serves"):
        of("BlipForConditionalGeneration", "blip")


@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_a_decoder_writes_unless_its_card_says_that_it_ranks(kind):
    name = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]

    assert of(name, kind) == "causal_lm"
    if kind in DECODERS:
        assert of(name, kind, {"pipeline_tag": "text-ranking"}) == "yes_no_reranker"


@pytest.mark.parametrize(
    ("kinds", "names", "served_by"),
    [
        (DETECTORS, auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES, "object_detector"),
        (WORDED, auto.MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES, "open_vocabulary_detector"),
        (TOGETHER, auto.MODEL_MAPPING_NAMES, "image_text_encoder"),
        (PICTURES, auto.MODEL_MAPPING_NAMES, "image_encoder"),
        (PICTURES - {"dinov2"}, auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, "image_classifier"),
    ],
)
def test_what_looks_at_pictures_is_told_by_the_names_that_transformers_has(kinds, names, served_by):
    def named(kind: str) -> str:
        name = names[kind]
        return name if isinstance(name, str) else name[0]

    assert {of(named(kind), kind) for kind in kinds} == {served_by}


def test_the_other_kinds_are_told_by_their_own_names():
    assert of("Florence2ForConditionalGeneration", "florence2") == "florence2"
    assert of("VisionEncoderDecoderModel", "vision-encoder-decoder") == "image_to_text"
    assert of("BartForSequenceClassification", "bart", id2label=NLI) == "zero_shot"
    assert of("WhisperForConditionalGeneration", "whisper") == "speech_recognizer"
    assert of("GLiClassModel", "GLiClass") == "gliclass"
    assert of("Extractor", "extractor") == "gliner2"
    assert served(Repository("org/it", {"gliner_config.json": {}})).family == "gliner"
    assert served(Repository("org/it", {"glirel_config.json": {}})).family == "glirel"


@pytest.mark.parametrize(
    ("files", "modules", "family_named", "makes"),
    [
        ({}, ("Transformer", "Pooling"), "text_encoder", (OutputType.DENSE,)),
        ({}, ("MLMTransformer", "SpladePooling"), "text_encoder", (OutputType.SPARSE,)),
        ({}, ("Router", "SpladePooling"), "text_encoder", (OutputType.SPARSE,)),
        (
            {"config_sentence_transformers.json": {"query_prefix": "[Q] "}},
            ("Transformer", "Dense"),
            "text_encoder",
            (OutputType.MULTIVECTOR,),
        ),
        ({"artifact.metadata": {"dim": 128}}, (), "text_encoder", (OutputType.MULTIVECTOR,)),
        ({}, ("Transformer", "LogitScore"), "yes_no_reranker", ()),
        ({"config.json": {}}, ("StaticEmbedding", "Normalize"), "text_encoder", (OutputType.DENSE,)),
        ({"config.json": {"model_type": "model2vec"}}, (), "text_encoder", (OutputType.DENSE,)),
    ],
)
def test_a_directory_of_sentence_transformers_says_what_it_makes(files, modules, family_named, makes):
    held = {"config.json": BERT} | files
    found = served(Repository("org/it", held, tuple((kind, "") for kind in modules)))

    assert (found.family, found.outputs) == (family_named, makes)


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("T5ForConditionalGeneration", "t5"),
        ("Phi4MMForCausalLM", "phi4mm"),
        ("BertForQuestionAnswering", "bert"),
        ("SegformerForImageClassification", "segformer"),
        ("", ""),
    ],
)
def test_what_no_family_serves_is_refused_by_its_name(architecture, kind):
    with pytest.raises(InvalidInput, match=f"org/it is a {architecture or 'model of no'}"):
        of(architecture, kind)


def test_the_kinds_named_here_are_those_that_the_families_have():
    assert not (ENCODERS | DECODERS) - PACKED - {"deberta", "deberta-v2", "mpnet"}
    assert not (ENCODERS | DECODERS) - set(CLASSIFIERS)
    assert set(KINDS) == WORDED
    assert set(eyes.KINDS) == SEEING
    assert set(PROCESSORS) == families.PAGES
    chosen = {"gliner", "gliner2", "glirel", "gliclass", "florence2", "image_to_text", "object_detector"}
    assert chosen | {"zero_shot"} <= set(family.names())
    assert set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) >= families.WRITERS
