"""ColPali and its like, of a few thousand random weights, give what transformers' own classes give."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from PIL import Image
from tokenizers import AddedToken
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from engine.adapters.forward.weights import BadWeights
from engine.adapters.vision.processors import reference_of
from engine.adapters.vision.shown import PROCESSORS, Shown
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import EncodeOptions, Item, Media, OutputType, Overflow, ScoreOptions, Task
from tests.engine.adapters import tiny_seeing
from tests.engine.adapters.tiny_decoders import EOS, byte_level
from tests.engine.adapters.tiny_texts import Served

DIM = 16
QUESTIONS = ["what does the levee cost?", "who?", "floods of 1927", "why?", ""]
SIZES = [(64, 48), (48, 64), (40, 40), (64, 48), (200, 24)]
IMAGES = [Image.effect_noise(size, 60 + 10 * place).convert("RGB") for place, size in enumerate(SIZES)]


def _colqwen2() -> Any:
    return tf.ColQwen2Config(
        vlm_config=tiny_seeing.FAMILIES["qwen2_vl"].config().to_dict(), embedding_dim=DIM
    )


def _colpali() -> Any:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "image_size": 32, "patch_size": 8}
    seen = {**tiny_seeing.VISION, **sizes}
    text = {**tiny_seeing.TEXT, "model_type": "gemma", "head_dim": 16, "vocab_size": 1500}
    vlm = tf.PaliGemmaConfig(
        vision_config={**seen, "model_type": "siglip_vision_model", "projection_dim": 64},
        text_config=text,
        image_token_index=tiny_seeing.IDS["<image>"],
        projection_dim=64,
        hidden_size=64,
    )
    return tf.ColPaliConfig(vlm_config=vlm.to_dict(), embedding_dim=DIM)


def _colmodernvbert() -> Any:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "image_size": 32, "patch_size": 8}
    text = {
        **tiny_seeing.TEXT,
        "vocab_size": 400,  # its processor adds a token
        "num_key_value_heads": None,
        "local_attention": 8,
        "global_attn_every_n_layers": 2,
    }
    vlm = tf.ModernVBertConfig(
        text_config={**text, "cls_token_id": 256, "sep_token_id": 257, "pad_token_id": 256},
        vision_config={**tiny_seeing.VISION, **sizes},
        image_token_id=tiny_seeing.IDS["<image>"],
        pixel_shuffle_factor=2,
    )
    return tf.ColModernVBertConfig(vlm_config=vlm.to_dict(), embedding_dim=DIM)


def _siglip() -> Any:
    made = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    made.image_seq_length = 16
    return made


KINDS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "colqwen2": (_colqwen2, tiny_seeing.FAMILIES["qwen2_vl"].images),
    "colpali": (_colpali, _siglip),
    "colmodernvbert": (_colmodernvbert, lambda: Idefics3ImageProcessorPil(**tiny_seeing.SIDES)),
}
SETTINGS = {"colmodernvbert": {"image_seq_len": 4}}
"""Of the processor: how many tokens a tile has, which follows from the configuration."""


@pytest.fixture(scope="module", params=list(KINDS))
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config, images = KINDS[request.param]
    to = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(5)
    model = tf.AutoModelForPreTraining.from_config(config())
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    model.save_pretrained(to)
    backend = byte_level()
    backend.add_special_tokens([AddedToken(token, special=True) for token in tiny_seeing.SPECIAL])
    tf.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=EOS, pad_token=EOS, bos_token=EOS
    ).save_pretrained(to)
    images().save_pretrained(to)
    (to / "processor_config.json").write_text(json.dumps(SETTINGS.get(request.param, {})))
    return to


def served(path: Path, **given: Any) -> Served:
    fields = {"family": "page_encoder", "outputs": ("multivector",), "inputs": ("text", "image")}
    return Served(path, **(fields | given))


def sent(image: Image.Image) -> Item:
    out = io.BytesIO()
    image.save(out, "PNG")
    return Item(images=(Media(out.getvalue()),))


def pages(images: list[Image.Image]) -> list[Item]:
    return [sent(image) for image in images]


def made(model: Served, items: list[Item]) -> list[np.ndarray]:
    jobs = model.preparer.prepare(Task.ENCODE, items, EncodeOptions())
    return [output.multivector for output in model.model.run(jobs)]


def expected(path: Path) -> tuple[list[torch.Tensor], list[torch.Tensor], Any]:
    """Of QUESTIONS and IMAGES, one at a time, and the library's processor."""
    model = tf.AutoModelForPreTraining.from_pretrained(path).eval()
    kind = model.config.model_type
    images = KINDS[kind][1]() if kind in SETTINGS else reference_of(path)
    processor = PROCESSORS[kind](images, tf.AutoTokenizer.from_pretrained(path), **SETTINGS.get(kind, {}))
    with torch.inference_mode():
        asked = [model(**processor.process_queries([text])).embeddings[0] for text in QUESTIONS]
        shown = []
        for image in IMAGES:
            inputs = {k: v for k, v in processor.process_images([image]).items() if k != "labels"}
            shown.append(model(**inputs).embeddings[0])
    return asked, shown, processor


def test_questions_and_pages_get_the_vectors_and_scores_of_transformers(
    path: Path, compared: Callable[..., None]
):
    model = served(path, dims={"multivector": DIM})
    asked, shown, processor = expected(path)
    items = [*[Item(text=text) for text in QUESTIONS], *pages(IMAGES)]

    together = made(model, items)
    alone = [made(model, [item])[0] for item in items]
    back = made(model, items[::-1])[::-1]
    options = ScoreOptions(query=items[0])
    jobs = model.preparer.prepare(Task.SCORE, items[len(QUESTIONS) :], options)
    scores = [output.score for output in model.model.run(jobs)]

    for found, single, reverse, theirs in zip(together, alone, back, [*asked, *shown], strict=True):
        assert found.shape == tuple(theirs.shape)
        assert np.abs(found - theirs.numpy()).max() <= 1e-4
        assert np.abs(found - single).max() <= 1e-5 and np.abs(found - reverse).max() <= 1e-5
    matched = processor.score_retrieval(asked[:1], shown)[0]
    assert np.abs(np.array(scores) - matched.numpy()).max() <= 1e-3
    theirs = [rows.numpy() for rows in [*asked, *shown]]
    compared("page_encoder", f"tiny {path.name[:-1]}", "transformers", together, theirs, alone)


def test_a_query_counts_once_and_a_page_by_its_patches(path: Path):
    model = served(path)

    first, second = model.preparer.prepare(
        Task.SCORE, pages(IMAGES[:2]), ScoreOptions(query=Item(text=QUESTIONS[0]))
    )

    length = len(first.payload.parts[0].ids)
    assert first.payload.parts[0] is second.payload.parts[0]
    assert (first.cost - second.cost, first.usage.input_tokens, second.usage.input_tokens) == (
        length,
        length,
        0,
    )
    rows = made(model, pages(IMAGES[1:2]))[0]
    assert second.cost >= len(rows) // 4


def test_a_long_question_loses_its_end_and_nothing_else(path: Path):
    model = served(path, max_tokens=60)
    shown = Shown(path)
    kept = 60 - shown.around

    (cut,) = model.prepare(["x" * 90])
    (error,) = model.prepare(["x" * 90], overflow=Overflow.ERROR)

    assert (cut.payload.parts[0].ids.tolist(), cut.usage.truncated) == (
        shown.question("x" * kept).tolist(),
        1,
    )
    assert isinstance(error, InputTooLong)


def test_what_cannot_be_done_is_said(path: Path):
    model = served(path)
    damaged = Item(images=(Media(sent(IMAGES[0]).images[0].data[:200]),))

    good, none, bad = model.preparer.prepare(Task.ENCODE, [Item(text="a"), Item(), damaged], EncodeOptions())
    jobs = [good] if isinstance(bad, EngineError) else [good, bad]
    answers = model.model.run(jobs)

    assert isinstance(none, InvalidInput) and none.item == 1
    assert answers[0].multivector.shape[1] == DIM
    assert all(isinstance(answer, InvalidInput) for answer in answers[1:])
    for asked in ({"output_types": (OutputType.DENSE,)}, {"dimensions": 4}, {"instruction": "find"}):
        with pytest.raises(InvalidInput, match="cannot do"):
            model.prepare(["a"], **asked)
    with pytest.raises(BadWeights, match="the model makes 16"):
        served(path, dims={"multivector": 8})


def test_what_stands_before_a_question_is_the_directorys(path: Path):
    usual = Shown(path).question("why?")
    stored = (path / "processor_config.json").read_text()
    (path / "processor_config.json").write_text('{"query_prefix": "Ask: "}')

    asked = Shown(path).question("why?")

    (path / "processor_config.json").write_text(stored)
    ids = tf.AutoTokenizer.from_pretrained(path)("Ask: why?", add_special_tokens=False)["input_ids"]
    start = 0 if asked[0] == ids[0] else 1  # PaliGemma's begins with a token of its own
    assert asked[start : start + len(ids)].tolist() == ids and len(asked) != len(usual)


def test_it_leaves_its_device_whole(path: Path):
    model = served(path)
    held = model.model.tensors()

    assert model.footprint.weights_bytes > 0 and held
    model.model.unload()
    assert sum(tensor.nbytes for tensor in held.values()) == 0
