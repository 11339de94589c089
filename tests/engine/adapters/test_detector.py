from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from engine import catalog
from engine.adapters.detector import FAMILY
from engine.errors import InferenceFailed, InvalidInput
from engine.requests import Extracted, ExtractOptions, Item, Media, Task
from tests.photos import photo
from tests.weights import CATALOG, weights

ID = "tensorflow/ssd_mobilenet_v2_coco"
SPEC = catalog.load([CATALOG]).resolve(ID)[0]


@pytest.fixture(scope="module")
def model():
    model = FAMILY.load(SPEC, weights(ID), "cpu")
    yield model
    model.unload()


@pytest.fixture(scope="module")
def preparer():
    return FAMILY.preparer(SPEC, weights(ID))


@pytest.fixture(scope="module")
def detect(model, preparer):
    def detect(images: list[bytes], *labels: str, **options: object) -> list[Extracted]:
        items = [Item(images=(Media(data),)) for data in images]
        return model.run(preparer.prepare(Task.EXTRACT, items, ExtractOptions(labels=labels, **options)))

    return detect


def test_things_in_photos_are_found_with_their_boxes(detect):
    cat, cup = detect([photo("chelsea"), photo("coffee")])

    (found,) = cat.objects
    assert (found.label, found.score) == ("cat", pytest.approx(0.910, abs=0.002))
    assert found.bbox == pytest.approx((8.7, 0.4, 408.1, 296.7), abs=1)
    assert [d.label for d in cup.objects] == ["cup", "bowl", "dining table"]


def test_boxes_are_in_pixels_of_the_image_as_it_is_meant_to_be_seen(detect):
    upright = Image.open(io.BytesIO(photo("chelsea")))
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.transpose(Image.Transpose.ROTATE_90).save(turned, "PNG", exif=exif)

    (plain,), (oriented,) = (answer.objects for answer in detect([photo("chelsea"), turned.getvalue()]))

    assert oriented.bbox == pytest.approx(plain.bbox, abs=1)


def test_asked_labels_and_threshold_choose_what_is_given(detect):
    assert [d.label for d in detect([photo("coffee")], "Table", "CUP")[0].objects] == ["CUP", "Table"]
    assert [d.label for d in detect([photo("chelsea")], "animal")[0].objects] == ["animal"]
    assert detect([photo("coffee")], "cat")[0].objects == ()
    assert [d.label for d in detect([photo("coffee")], threshold=0.9)[0].objects] == ["cup"]
    with pytest.raises(InvalidInput, match="'unicorn'; it can give: airplane, animal"):
        detect([photo("coffee")], "unicorn")


def test_a_batch_gives_what_each_image_gives_alone(detect):
    photos = [photo(name) for name in ("chelsea", "coffee", "motorcycle_left")]
    alone = [detect([data])[0].objects for data in photos]

    for together, expected in zip(detect(photos + photos[:2]), alone + alone[:2], strict=True):
        assert [d.label for d in together.objects] == [d.label for d in expected]
        assert np.allclose([d.bbox for d in together.objects], [d.bbox for d in expected], atol=0.01)


def test_a_damaged_image_fails_alone(detect, preparer):
    cut = photo("coffee")[:20_000]

    damaged, fine = detect([cut, photo("chelsea")])
    (refused,) = preparer.prepare(Task.EXTRACT, [Item(images=(Media(b""),))], ExtractOptions())

    assert (type(damaged), damaged.item) == (InvalidInput, 0)
    assert [d.label for d in fine.objects] == ["cat"]
    assert (type(refused), refused.item) == (InvalidInput, 0)


def test_numbers_that_are_not_finite_fail_the_image(model, preparer):
    (job,) = preparer.prepare(Task.EXTRACT, [Item(images=(Media(photo("chelsea")),))], ExtractOptions())
    rows = np.full((1, 7), np.nan, np.float32)

    assert isinstance(model._answer(rows, (10, 10), job.payload), InferenceFailed)


def test_boxes_are_those_of_opencv_alone(detect, compared):
    """Shares of the image's width and height; OpenCV also reads the file and makes it small itself."""
    folder, size = weights(ID), SPEC.options["size"]
    network = cv2.dnn.readNetFromTensorflow(str(next(folder.glob("*.pb"))), str(next(folder.glob("*.pbtxt"))))
    photos = [photo(name) for name in ("chelsea", "coffee")]
    expected, sizes = [], []
    for data in photos:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        network.setInput(cv2.dnn.blobFromImage(image, size=(size, size), swapRB=True))
        rows = network.forward().reshape(-1, 7)
        rows = rows[rows[:, 2] >= 0.5]
        expected.append(rows[np.argsort(-rows[:, 2], kind="stable")][:, 2:].clip(0, 1))
        sizes.append(np.array([1, *image.shape[1::-1], *image.shape[1::-1]]))

    def shares(answers):
        told = zip(answers, sizes, strict=True)
        return [np.array([[d.score, *d.bbox] for d in a.objects]) / whole for a, whole in told]

    together = shares(detect(photos, threshold=0.5))

    alone = [shares(detect([data], threshold=0.5) * 2)[place] for place, data in enumerate(photos)]
    compared("detector", ID, f"opencv {cv2.__version__}", together, expected, alone, weights="real")
    for ours, theirs in zip(together, expected, strict=True):
        assert np.abs(ours - theirs).max() <= 1e-4
