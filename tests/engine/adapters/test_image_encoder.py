from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import MobileNetV2Model
from transformers.models.mobilenet_v2.image_processing_pil_mobilenet_v2 import MobileNetV2ImageProcessorPil

from engine import catalog
from engine.adapters.forward.weights import BadWeights
from engine.adapters.image_encoder import FAMILY
from engine.adapters.preparing.image_processor import ImageProcessor
from engine.errors import InferenceFailed, InvalidInput
from engine.requests import Encoded, EncodeOptions, ExtractOptions, Item, Media, OutputType, Task
from tests.photos import photo
from tests.weights import CATALOG, weights

ID = "google/mobilenet_v2_1.0_224"
SPEC = catalog.load([CATALOG]).resolve(ID)[0]


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    model = FAMILY.load(SPEC, weights(ID), "cpu")
    yield model
    model.unload()


@pytest.fixture(scope="module")
def preparer():
    return FAMILY.preparer(SPEC, weights(ID))


@pytest.fixture(scope="module")
def encode(model, preparer):
    def encode(images: list[bytes], **options: object) -> list[Encoded]:
        items = [Item(images=(Media(data),)) for data in images]
        return model.run(preparer.prepare(Task.ENCODE, items, EncodeOptions(**options)))

    return encode


def test_vectors_are_those_of_the_reference_processor_and_model(encode, compared):
    names = ("chelsea", "coffee", "page")
    reference = MobileNetV2Model.from_pretrained(weights(ID)).eval()
    processor = MobileNetV2ImageProcessorPil.from_pretrained(weights(ID))
    images = [Image.open(io.BytesIO(photo(name))).convert("RGB") for name in names]
    with torch.inference_mode():
        seen = processor(images, return_tensors="pt")
        expected = reference(**seen).pooler_output.numpy()

    found = np.stack([answer.dense for answer in encode([photo(n) for n in names], normalize=False)])

    assert found.shape == (3, 1280)
    assert np.abs(found - expected).max() <= 1e-5
    alone = [encode([photo(name)], normalize=False)[0].dense for name in names]
    compared("image_encoder", ID, "transformers", found, expected, alone, weights="real")


def test_likeness_is_the_cosine_of_vectors_of_length_one(encode):
    cat = Image.open(io.BytesIO(photo("chelsea")))
    flipped = io.BytesIO()
    cat.transpose(Image.Transpose.FLIP_LEFT_RIGHT).crop((20, 10, 430, 290)).save(flipped, "PNG")

    a, b, other = (answer.dense for answer in encode([photo("chelsea"), flipped.getvalue(), photo("coffee")]))

    assert np.linalg.norm(a) == pytest.approx(1, abs=1e-5)
    assert a @ b > 0.9
    assert a @ other < 0.6


def test_a_batch_gives_what_each_image_gives_alone(encode):
    photos = [photo(name) for name in ("chelsea", "coffee", "page")]
    alone = [encode([data])[0].dense for data in photos]

    together = [answer.dense for answer in encode(photos * 3)]

    assert np.abs(np.stack(together) - np.stack(alone * 3)).max() <= 1e-5


@pytest.mark.parametrize(("dtype", "size"), [("float16", 1280), ("int8", 1280), ("ubinary", 160)])
def test_vectors_come_in_the_dtype_that_was_asked(encode, dtype, size):
    (answer,) = encode([photo("chelsea")], output_dtype=dtype)

    assert answer.dense.shape == (size,)
    assert answer.dense.dtype == np.dtype("uint8" if dtype == "ubinary" else dtype)


@pytest.mark.parametrize(
    "options",
    [
        EncodeOptions(output_types=(OutputType.SPARSE,)),
        EncodeOptions(output_dtype="int4"),
        EncodeOptions(dimensions=64),
        EncodeOptions(pooling="mean"),
        EncodeOptions(instruction="look"),
        ExtractOptions(),
    ],
)
def test_what_the_model_cannot_do_is_refused_early(preparer, options):
    task = Task.EXTRACT if isinstance(options, ExtractOptions) else Task.ENCODE
    with pytest.raises(InvalidInput, match="google/mobilenet"):
        preparer.prepare(task, [], options)


def test_preparing_reads_headers_only_and_cost_grows_with_the_image(preparer):
    whole = photo("astronaut")
    items = [Item(images=(Media(data),)) for data in (whole, whole[:20_000], b"no image")]
    items.append(Item(text="cat"))

    first, second, *bad = preparer.prepare(Task.ENCODE, items, EncodeOptions())

    assert first.cost == second.cost == 224 * 224 + 512 * 512 // 50
    assert (first.usage.images, first.nbytes) == (1, len(whole))
    assert [(type(error), error.item) for error in bad] == [(InvalidInput, 2), (InvalidInput, 3)]


def test_a_damaged_image_fails_alone(encode):
    cut, fine = encode([photo("astronaut")[:20_000], photo("chelsea")])

    assert (type(cut), cut.item) == (InvalidInput, 0)
    assert fine.dense.shape == (1280,)


def test_numbers_that_are_not_finite_fail_the_job(preparer):
    broken = FAMILY.load(SPEC, weights(ID), "cpu")
    broken._model.conv_1x1.normalization.bias[3] = torch.nan

    (failed,) = broken.run(
        preparer.prepare(Task.ENCODE, [Item(images=(Media(photo("chelsea")),))], EncodeOptions())
    )

    assert isinstance(failed, InferenceFailed)
    broken.unload()


def test_dims_that_are_not_those_of_the_model_are_refused():
    wrong = SPEC.model_copy(update={"dims": {OutputType.DENSE: 100}})

    with pytest.raises(BadWeights, match=r"says dims \{dense: 100\}; the model makes 1280"):
        FAMILY.load(wrong, weights(ID), "cpu")


@pytest.mark.parametrize("size", [(300, 451), (451, 300), (31, 500)])
def test_shortest_edge_and_centre_crop_are_those_of_the_reference(tmp_path, size):
    reference = MobileNetV2ImageProcessorPil(
        size={"shortest_edge": 64}, crop_size={"height": 56, "width": 48}, do_center_crop=True, resample=3
    )
    reference.save_pretrained(tmp_path)
    noise = Image.effect_noise(size, 90).convert("RGB")

    ours = ImageProcessor.of(tmp_path)

    assert ours.shape == (56, 48)
    assert np.abs(ours(noise) - reference(noise, return_tensors="np")["pixel_values"][0]).max() <= 1e-5


@pytest.mark.parametrize(
    "change", [{"do_pad": True}, {"size": {"longest_edge": 9}}, {"do_center_crop": False}]
)
def test_preprocessing_that_is_not_done_here_is_refused(tmp_path, change):
    processor = MobileNetV2ImageProcessorPil(size={"shortest_edge": 64}, crop_size={"height": 9, "width": 9})
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**processor.to_dict(), **change}))

    with pytest.raises(BadWeights, match="not supported"):
        ImageProcessor.of(tmp_path)
