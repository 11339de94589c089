"""Every architecture that a family here serves is told by its config.json, and others are refused."""

from __future__ import annotations

import pytest
from transformers.models.auto import modeling_auto as auto

from engine.adapters import family
from engine.adapters.forward.heads import CLASSIFIERS
from engine.adapters.forward.packed import PACKED
from engine.adapters.generation import kinds
from engine.adapters.open_vocabulary_detector import KINDS
from engine.adapters.vision.shown import PROCESSORS
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
from tests.engine.adapters import published
from tests.engine.adopting.repositories import BERT

NLI = {"0": "entailment", "1": "neutral", "2": "contradiction"}
BARE = auto.MODEL_MAPPING_NAMES | {"gte": "GteModel", "new": "NewModel"}
FLASH = {"AutoConfig": published.FLASH_CODE}
JINA_BERT = {"AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig"}


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
    if kind == "qwen3":
        assert of(name, kind, {"pipeline_tag": "text-ranking"}) == "yes_no_reranker"
    elif kind in DECODERS:
        with pytest.raises(InvalidInput, match=rf"org/it is a {kind} that ranks texts .* options\.template"):
            of(name, kind, {"pipeline_tag": "text-ranking"})


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
    boundary = {"model_type": "extractor", "architecture": "boundary"}
    assert served(Repository("org/it", {"config.json": boundary})).family == "gliner2"
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
        ({"config.json": {"model_type": "qwen3"}}, ("Transformer", "LogitScore"), "yes_no_reranker", ()),
        ({"config.json": {}}, ("StaticEmbedding", "Normalize"), "text_encoder", (OutputType.DENSE,)),
        ({"config.json": {"model_type": "model2vec"}}, (), "text_encoder", (OutputType.DENSE,)),
    ],
)
def test_a_directory_of_sentence_transformers_says_what_it_makes(files, modules, family_named, makes):
    held = {"config.json": BERT} | files
    found = served(Repository("org/it", held, tuple((kind, "") for kind in modules)))

    assert (found.family, found.outputs) == (family_named, makes)


@pytest.mark.parametrize(
    ("architecture", "said", "family_named"),
    [
        ("XLMRobertaModel", {"auto_map": FLASH, "position_embedding_type": "rotary"}, "text_encoder"),
        (
            "XLMRobertaForSequenceClassification",
            {"auto_map": FLASH, "id2label": {"0": "LABEL_0"}},
            "cross_encoder",
        ),
        (
            "JinaBertModel",
            {"auto_map": JINA_BERT, "position_embedding_type": "alibi", "feed_forward_type": "geglu"},
            "text_encoder",
        ),
        (
            "JinaBertForSequenceClassification",
            {
                **{"auto_map": JINA_BERT, "position_embedding_type": "alibi"},
                **{"feed_forward_type": "geglu", "id2label": {"0": "LABEL_0"}},
            },
            "cross_encoder",
        ),
        ("NomicBertModel", {**published.NOMIC, "architectures": ["NomicBertModel"]}, "text_encoder"),
    ],
)
def test_code_of_its_own_is_told_by_its_name_and_not_run(architecture, said, family_named):
    held = {"architectures": [architecture], **said}

    assert served(Repository("org/it", {"config.json": held})).family == family_named


def test_a_model_that_sees_and_embeds_or_ranks_is_told_by_its_card_or_its_modules():
    held = {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl"}
    by_card = Repository("org/it", {"config.json": held}, (), {"pipeline_tag": "sentence-similarity"})
    by_modules = Repository("org/it", {"config.json": held}, (("Transformer", ""), ("Pooling", "1_Pooling")))

    ranks = Repository("org/it", {"config.json": held}, (), {"pipeline_tag": "text-ranking"})

    assert {served(each).family for each in (by_card, by_modules)} == {"multimodal_encoder"}
    assert served(ranks).family == "multimodal_reranker"
    assert served(Repository("org/it", {"config.json": held})).family == "vision_lm"


def test_a_variant_of_such_code_that_is_not_served_is_refused():
    said = {"auto_map": JINA_BERT, "position_embedding_type": "absolute", "feed_forward_type": "geglu"}
    modules = (("Transformer", ""), ("Pooling", "1_Pooling"))

    with pytest.raises(InvalidInput, match="org/it cannot be served: position_embedding_type is 'absolute'"):
        served(Repository("org/it", {"config.json": {"architectures": ["JinaBertModel"], **said}}, modules))


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
    assert set(kinds.KINDS) == SEEING
    assert set(PROCESSORS) == families.PAGES
    chosen = {"gliner", "gliner2", "glirel", "gliclass", "florence2", "image_to_text", "object_detector"}
    assert chosen | {"zero_shot"} <= set(family.names())
    assert set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) >= families.WRITERS
