from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer, BartConfig, Florence2Config, Florence2ForConditionalGeneration
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from engine.adapters.florence2 import FAMILY, FlorenceTask
from engine.adapters.vision.pictures import Look
from engine.errors import InvalidInput
from engine.requests import ExtractOptions, Task
from tests.engine.adapters.tiny_vision import change, entry, noise, save, shown, words

SPEC = entry("florence2", Task.EXTRACT, options={"max_new_tokens": 12, "num_beams": 1})
IMAGES = [noise(64, 48), noise(40, 90, seed=1), noise(64, 48, seed=2)]
RULES = {
    "ocr": {"PATTERN": r"(.+?)" + r"<loc_(\d+)>" * 8},
    "phrase_grounding": {"banned_grounding_tokens": []},
    "pure_text": {},
    "description_with_bboxes": {},
    "description_with_polygons": {},
    "polygons": {},
    "bboxes": {},
    "description_with_bboxes_or_polygons": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("florence2")
    words(path, "<s>", "</s>", "<pad>", **{"<s>": 0, "<pad>": 1, "</s>": 2})
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.add_tokens([f"<loc_{place}>" for place in range(1000)])
    tokenizer = type(tokenizer).from_pretrained(
        _saved(tokenizer, path), extra_special_tokens={"image_token": "<image>"}
    )
    tokenizer.save_pretrained(path)
    size = len(tokenizer)
    text = BartConfig(
        vocab_size=size + 2, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64,
    )  # fmt: skip
    vision = {
        "depths": [1, 1],
        "patch_size": [7, 3],
        "patch_stride": [4, 2],
        "patch_padding": [3, 1],
        "patch_prenorm": [False, True],
        "embed_dim": [16, 32],
        "num_heads": [2, 2],
        "num_groups": [2, 2],
        "window_size": 4,
        "projection_dim": 32,
    }
    config = Florence2Config(
        text_config=text.to_dict(), vision_config=vision, image_token_id=tokenizer.image_token_id
    )
    processor = CLIPImageProcessorPil(size={"height": 32, "width": 32}, do_center_crop=False)
    save(path, Florence2ForConditionalGeneration(config), processor, 0.3)
    change(path, image_seq_length=17)
    import json

    (path / "processor_config.json").write_text(json.dumps({"post_processor_config": RULES}))
    return path


def _saved(tokenizer, path):
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def preparer(path):
    return FAMILY.preparer(SPEC, path)


@pytest.fixture(scope="module")
def model(path):
    model = FAMILY.load(SPEC, path, "cpu")
    yield model
    model.unload()


def look():
    return Look(0, 200, 100, {})


def test_answers_are_those_of_the_reference_in_any_company(path, preparer, model, compared):
    reference = Florence2ForConditionalGeneration.from_pretrained(path).eval()
    processor = model._reading._processor
    tasks = ["<CAPTION>", "<OCR>", "<DETAILED_CAPTION>"]
    jobs, expected = [], []
    for image, task in zip(IMAGES, tasks, strict=True):
        jobs += preparer.prepare(Task.EXTRACT, shown(image), ExtractOptions(extra={"task": task}))
        seen = processor(images=image, text=task, return_tensors="pt")
        seen.pop("token_type_ids", None)
        with torch.inference_mode():
            ids = reference.generate(**seen, max_new_tokens=12, num_beams=1, do_sample=False)
        told = processor.batch_decode(ids, skip_special_tokens=False)[0].replace("<pad>", "")
        expected.append(processor.post_process_generation(text=told, task=task, image_size=image.size)[task])

    together = [answer.data["text"] for answer in model.run(jobs)]

    alone = [model.run([job])[0].data["text"] for job in jobs]
    compared("florence2", "tiny Florence-2", "transformers", together, expected, alone)
    assert together == expected
    assert len(set(expected)) > 1
    assert alone == expected


def answer(model, text, task, *labels):
    return model._reading.read(text, FlorenceTask(task, labels), look())


def test_things_have_boxes_in_pixels(model):
    found = answer(model, "car<loc_100><loc_200><loc_500><loc_999></s>", "<OD>")

    (thing,) = found.objects
    assert (thing.label, thing.score) == ("car", 1.0)
    assert thing.bbox == pytest.approx((20, 20, 100, 99), abs=0.2)


def test_phrases_that_were_found_carry_the_labels_that_were_asked(model):
    found = answer(
        model, "red car<loc_0><loc_0><loc_9><loc_9>dog<loc_0><loc_0><loc_9><loc_9></s>",
        "<CAPTION_TO_PHRASE_GROUNDING>", "Red Car", "dog",
    )  # fmt: skip

    assert [thing.label for thing in found.objects] == ["Red Car", "dog"]


def test_text_with_places_gives_entities_with_upright_boxes(model):
    places = "".join(f"<loc_{n}>" for n in (100, 100, 500, 100, 500, 300, 100, 300))

    found = answer(model, f"total{places}</s>", "<OCR_WITH_REGION>")

    (word,) = found.entities
    assert (word.text, word.label) == ("total", "text")
    assert word.bbox == pytest.approx((20.1, 10.05, 100.1, 30.05), abs=0.2)
    assert len(found.data["quads"]) == 1


def test_what_a_task_needs_is_asked_for(preparer):
    def refused(**options):
        try:
            (found,) = preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), ExtractOptions(**options))
        except InvalidInput as error:
            return str(error)
        return str(found)

    assert "there are: <OCR>" in refused(extra={"task": "dance"})
    assert "send an instruction" in refused(extra={"task": "caption_to_phrase_grounding"})
    assert "neither labels" in refused(instruction="cat", extra={"task": "OD"})
    for region in ([1, 2], [0, 0, float("nan"), 9], [0, 0, 10**400, 9], [-1, 0, 9, 9]):
        assert "x1, y1, x2, y2" in refused(extra={"task": "REGION_TO_OCR", "region": region})
    assert "holds <image>" in refused(labels=("a <image> b",))
    assert "longer than" in refused(labels=tuple(f"{n} {'x' * 1000}" for n in range(9)))
    assert "label" in refused(labels=("",))
    assert "label" in refused(labels=(5,))
    assert "prompt" in refused(extra={"task": "REGION_TO_OCR", "region": [0, 0, 32, 24]})
