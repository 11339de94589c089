"""What an adopted entry says: what the repository's papers say, and no more."""

from __future__ import annotations

import pytest

from engine.adapters.family import family as family_of
from engine.adapters.lora.family import WithAdapters
from engine.adopting import adopt
from engine.adopting.entry import entry, licence
from engine.adopting.repository import Repository
from engine.errors import InvalidInput, WeightsUnavailable
from engine.requests import EncodeOptions, Item
from tests.engine.adapters import published, tiny_texts
from tests.engine.adopting.repositories import BERT, EMBEDDER, MODULES, cached, card


def adopted(name: str = "org/it"):
    return adopt.repository(name, False, None, None)


def test_an_embedder_in_the_hubs_cache_becomes_an_entry(cache):
    cached(cache, "org/it", EMBEDDER)
    spec = adopted()

    assert (spec.id, spec.family, spec.licence) == ("org/it", "text_encoder", "Apache-2.0")
    assert (spec.tasks, spec.outputs, spec.dims) == (("encode",), ("dense",), {"dense": 32})
    assert spec.max_tokens == 48
    assert [str(source) for source in spec.sources] == ["hub org/it"]
    assert "set pooling" not in spec.notes


def test_a_dense_layer_after_pooling_says_how_many_dimensions_there_are(cache):
    modules = [*EMBEDDER["modules.json"], {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]
    cached(cache, "org/it", EMBEDDER | {"modules.json": modules, "2_Dense/config.json": {"out_features": 7}})

    assert adopted().dims == {"dense": 7}


def test_what_is_not_said_is_left_out(cache):
    cached(cache, "org/it", {"config.json": {"architectures": ["BertModel"], "model_type": "bert"}})
    spec = adopted()

    assert (spec.dims, spec.max_tokens, spec.licence, spec.dtype) == ({}, None, "unknown", "float32")
    assert "set pooling" in spec.notes


def test_a_table_of_vectors_needs_neither_a_configuration_nor_a_card(cache):
    modules = [{"path": "0_StaticEmbedding", "type": "sentence_transformers.models.StaticEmbedding"}]
    cached(cache, "org/it", {"modules.json": modules})
    spec = adopted()

    assert (spec.family, spec.devices, spec.dims) == ("text_encoder", ("cpu", "cuda"), {})
    vectors = entry(Repository("org/it", {"config.json": {"model_type": "model2vec"}}))
    assert "set pooling" not in vectors.notes


def test_a_chat_model_keeps_its_stored_dtype_and_a_context_that_fits():
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16"}
    spec = entry(Repository("org/it", {"config.json": config | {"max_position_embeddings": 40960}}))

    assert (spec.dtype, spec.max_tokens, spec.limits.max_slots) == ("bfloat16", 32768, 1)


def test_a_tokenizer_without_a_limit_gives_none():
    files = {"config.json": BERT, "tokenizer_config.json": {"model_max_length": 10**30}}

    assert entry(Repository("org/it", files)).max_tokens is None


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ({"license": "mit"}, "MIT"),
        ({"license": "cc-by-nc-4.0"}, "CC-BY-NC-4.0"),
        ({"license": "other", "license_name": "qwen-research"}, "qwen-research"),
        ({"license": "gemma"}, "gemma"),
        ({"license": ["apache-2.0", "mit"]}, "Apache-2.0"),
        ({}, "unknown"),
    ],
)
def test_a_licence_is_written_as_spdx_writes_it(said, written):
    assert licence(said) == written


def test_a_gated_repository_is_said_to_be_one(cache):
    cached(cache, "org/it", EMBEDDER | {"README.md": card(license="llama3.2", extra_gated_prompt="Agree")})

    assert "Gated" in adopted().notes


def test_what_the_cache_lacks_is_refused_with_what_to_do(cache):
    cache.mkdir()
    with pytest.raises(WeightsUnavailable, match=r"Nothing is known of org/it: .*`--online`"):
        adopted()
    with pytest.raises(InvalidInput, match="is no name of a repository"):
        adopted("org/-it..")


def test_papers_that_cannot_be_read_are_refused_and_a_card_is_not_needed(cache):
    cached(cache, "org/it", EMBEDDER | {"README.md": "---\na: [\n---\n"})
    cached(cache, "org/bad", EMBEDDER | {"config.json": "{"})

    assert adopted().licence == "unknown"
    with pytest.raises(InvalidInput, match=r"config.json of the repository is no JSON"):
        adopted("org/bad")


def test_adapters_in_the_checkpoint_are_named_with_the_roles_that_they_read(cache):
    snapshot = cached(cache, "org/it", {"modules.json": MODULES, "README.md": card(license="cc-by-nc-4.0")})
    published.saved(published.TURNED, published.flash(adapted=True, positions=False), snapshot)
    spec = adopted()

    assert spec.options["adapters"] == {"query": "retrieval.query", "document": "retrieval.passage"}
    assert {name: str(lora.sources[0]) for name, lora in spec.loras.items()} == dict.fromkeys(
        published.ADAPTERS, "hub org/it"
    )
    family = WithAdapters(family_of(spec.family), lambda _: snapshot)
    jobs = family.preparer(spec, snapshot).prepare("encode", [Item(text="w1")], EncodeOptions(is_query=True))
    assert jobs[0].payload.lora == "retrieval.query"


@pytest.mark.parametrize(
    ("names", "converted"),
    [
        (["config.json", "pytorch_model.bin"], "torch_checkpoint"),
        (["model.safetensors", "pytorch_model.bin"], None),
        (["config.json"], None),  # its weights are not here yet
    ],
)
def test_a_repository_of_pickles_is_read_by_the_conversion_for_them(cache, names, converted):
    folder = cached(cache, "org/it", EMBEDDER)
    for name in names:
        (folder / name).touch()
    spec = adopted()

    assert spec.sources[0].convert == converted
    assert ("It holds pickles only" in spec.notes) == (converted is not None)


@pytest.mark.parametrize("kind", ["bert", "modernbert", "qwen3"])
def test_the_family_that_was_told_serves_the_repository(cache, kind):
    files = {key: EMBEDDER[key] for key in ("modules.json", "1_Pooling/config.json", "README.md")}
    snapshot = cached(cache, "org/it", files)
    tiny_texts.saved(tiny_texts.FAMILIES[kind](), snapshot)
    spec = adopted()
    (answer,) = tiny_texts.Served(snapshot, **spec.model_dump(exclude={"sources"})).encode(["w1 w2"])

    assert (spec.family, answer.dense.shape) == ("text_encoder", (spec.dims["dense"],))
