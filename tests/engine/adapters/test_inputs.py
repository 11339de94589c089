from __future__ import annotations

import pytest

from engine.adapters.preparing.kinds import extract_options, only_image, only_text
from engine.errors import InvalidInput
from engine.requests import EncodeOptions, ExtractOptions, Item, Media, Task

PICTURE = Media(b"x")


def test_a_text_model_takes_text_alone():
    assert only_text(Item(text="")) == ""
    for wrong, held in (
        (Item(), "nothing"),
        (Item(images=(PICTURE,)), "one image"),
        (Item(text="a", document=PICTURE), "text and a document"),
    ):
        with pytest.raises(InvalidInput, match=f"the item holds {held}"):
            only_text(wrong)


def test_a_lone_surrogate_is_no_text():
    with pytest.raises(InvalidInput, match="lone surrogate at 2"):
        only_text(Item(text="ab\ud800c"))


def test_an_image_model_takes_one_image_alone():
    assert only_image(Item(images=(PICTURE,))) is PICTURE
    for wrong, held in (
        (Item(), "nothing"),
        (Item(text="a"), "text"),
        (Item(images=(PICTURE, PICTURE)), "2 images"),
        (Item(images=(PICTURE,), text="a"), "text and one image"),
    ):
        with pytest.raises(InvalidInput, match=f"the item holds {held}"):
            only_image(wrong)


@pytest.mark.parametrize(
    "options",
    [
        ExtractOptions(output_schema={}),
        ExtractOptions(instruction="find"),
        ExtractOptions(threshold=1.5),
        ExtractOptions(threshold=float("nan")),
    ],
)
def test_a_model_of_fixed_labels_refuses_what_it_cannot_follow(options):
    with pytest.raises(InvalidInput):
        extract_options(Task.EXTRACT, options)


def test_a_model_that_extracts_does_nothing_else():
    with pytest.raises(InvalidInput, match="it cannot encode"):
        extract_options(Task.ENCODE, EncodeOptions())
