from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import CLIPConfig, CLIPModel, Siglip2Config, Siglip2Model, SiglipConfig, SiglipModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from engine.adapters.image_text_encoder import FAMILY
from engine.errors import InputTooLong, InvalidInput
from engine.requests import EncodeOptions, ExtractOptions, Item, Media, Overflow, ScoreOptions, Task
from tests.engine.adapters.tiny_vision import entry, noise, save, shown, words

TEXTS = ["a photo of a cat", "the dog", "this is a red car , a blue car and a remote control"]
SIZES = [(64, 48), (40, 90), (32, 32), (120, 33), (64, 48)]
SPEC = entry("image_text_encoder", *FAMILY.tasks, inputs=("text", "image"), dims={"dense": 24})
TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def clip(path):
    words(path, "<start>", "<end>", "<pad>", **{"<end>": 40})
    config = CLIPConfig(
        text_config=dict(TOWER, vocab_size=64, max_position_embeddings=20, eos_token_id=40, pad_token_id=0),
        vision_config=dict(TOWER, image_size=32, patch_size=8),
        projection_dim=24,
    )
    processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return save(path, CLIPModel(config), processor, 0.05), processor, {"padding": True}


def siglip(path):
    words(path, "<start>", "<end>", "<pad>")
    tower = dict(TOWER, hidden_size=24)
    config = SiglipConfig(
        text_config=dict(tower, vocab_size=64, max_position_embeddings=16, projection_size=24),
        vision_config=dict(tower, image_size=32, patch_size=8),
    )
    processor = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    return save(path, SiglipModel(config), processor, 0.05), processor, {"padding": "max_length"}


def naflex(path):
    words(path, "<start>", "<end>", "<pad>")
    tower = dict(TOWER, hidden_size=24)
    config = Siglip2Config(
        text_config=dict(tower, vocab_size=64, max_position_embeddings=16, projection_size=24),
        vision_config=dict(tower, num_patches=16, patch_size=8),
    )
    processor = Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
    return save(path, Siglip2Model(config), processor, 0.05), processor, {"padding": "max_length"}


class Both:
    """A model as the family has it, and as its library has it."""

    def __init__(self, path, make):
        self.path = path
        self.reference, self.processor, self.padding = make(path)
        self.preparer = FAMILY.preparer(SPEC, path)
        self.model = FAMILY.load(SPEC, path, "cpu")

    def run(self, task, items, options):
        return self.model.run(self.preparer.prepare(task, items, options))

    def vectors(self, items, **options):
        return np.stack([a.dense for a in self.run(Task.ENCODE, items, EncodeOptions(**options))])

    def expected(self, texts, images):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.path)
        most = self.reference.config.text_config.max_position_embeddings
        tokens = tokenizer(texts, max_length=most, truncation=True, return_tensors="pt", **self.padding)
        if self.padding["padding"] == "max_length":
            del tokens["attention_mask"]
        tokens.pop("token_type_ids", None)
        with torch.inference_mode():
            return self.reference(**tokens, **self.processor(images, return_tensors="pt"))


@pytest.fixture(scope="module", params=[clip, siglip, naflex])
def both(request, tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = Both(tmp_path_factory.mktemp(request.param.__name__), request.param)
    yield made
    made.model.unload()


IMAGES = [noise(*size, seed=i) for i, size in enumerate(SIZES)]
READ = [Item(text=text) for text in TEXTS]


def test_texts_and_images_have_the_reference_vectors_in_any_company(both, compared):
    expected = both.expected(TEXTS, IMAGES)
    mixed = [*READ[:2], *shown(*IMAGES), READ[2]]

    found = both.vectors(mixed)

    order = torch.cat([expected.text_embeds[:2], expected.image_embeds, expected.text_embeds[2:]])
    assert np.abs(found - order.numpy()).max() <= 1e-4
    alone = np.concatenate([both.vectors([item]) for item in mixed])
    assert np.abs(found - alone).max() <= 1e-5
    compared("image_text_encoder", f"tiny {both.path.name[:-1]}", "transformers", found, order.numpy(), alone)


def test_scores_are_cosines_or_the_chances_of_a_pair(both):
    expected = both.expected([TEXTS[0]], IMAGES)
    cosines = (expected.image_embeds @ expected.text_embeds.T)[:, 0]

    raw = both.run(Task.SCORE, shown(*IMAGES), ScoreOptions(query=READ[0]))
    chances = both.run(Task.SCORE, shown(*IMAGES), ScoreOptions(query=READ[0], activation="sigmoid"))
    turned = both.run(Task.SCORE, READ, ScoreOptions(query=shown(IMAGES[0])[0]))

    assert np.allclose([s.score for s in raw], cosines, atol=1e-4)
    assert np.allclose([s.score for s in chances], expected.logits_per_image.sigmoid()[:, 0], atol=1e-4)
    assert turned[0].score == pytest.approx(raw[0].score, abs=1e-5)


def test_labels_are_classified_as_by_the_zero_shot_pipeline(both):
    labels = ("cat", "dog", "red car")
    expected = both.expected([f"This is a photo of {label}." for label in labels], IMAGES[:2])
    logits = expected.logits_per_image
    chances = logits.softmax(-1) if isinstance(both.reference, CLIPModel) else logits.sigmoid()

    found = both.run(Task.EXTRACT, shown(*IMAGES[:2]), ExtractOptions(labels=labels))
    one = both.run(
        Task.EXTRACT,
        shown(IMAGES[0]),
        ExtractOptions(labels=labels, extra={"top_k": 1, "template": "{label}"}),
    )

    for answer, row in zip(found, chances, strict=True):
        assert [c.score for c in answer.classifications] == sorted(
            (c.score for c in answer.classifications), reverse=True
        )
        said = {c.label: c.score for c in answer.classifications}
        assert np.allclose([said[label] for label in labels], row, atol=1e-4)
    assert len(one[0].classifications) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_points_the_same_way(both, dtype):
    whole = both.vectors([*READ, *shown(*IMAGES)])
    half = FAMILY.load(SPEC, both.path, "cpu")
    half._model.to(dtype)

    found = half.run(both.preparer.prepare(Task.ENCODE, [*READ, *shown(*IMAGES)], EncodeOptions()))

    assert min((np.stack([a.dense for a in found]) * whole).sum(1)) >= 0.999
    half.unload()


def test_a_bad_input_fails_alone_and_costs_are_tokens_and_patches(both):
    bad = Item(images=(Media(b"no image"),))
    prepared = both.preparer.prepare(
        Task.ENCODE, [bad, shown(IMAGES[2])[0], READ[1], Item()], EncodeOptions()
    )

    assert [isinstance(p, InvalidInput) and p.item for p in prepared] == [0, False, False, 3]
    assert 16 <= prepared[1].cost <= 17
    assert prepared[2].cost == prepared[2].usage.input_tokens
    assert (prepared[1].usage.images, prepared[2].usage.images) == (1, 0)


def test_a_query_counts_once(both):
    jobs = both.preparer.prepare(Task.SCORE, READ, ScoreOptions(query=shown(IMAGES[2])[0]))

    assert [job.usage.images for job in jobs] == [1, 0, 0]


def test_long_texts_are_cut_or_refused_as_asked(both):
    long = Item(text="cat " * 50)

    (cut,) = both.preparer.prepare(Task.ENCODE, [long], EncodeOptions())
    (refused,) = both.preparer.prepare(Task.ENCODE, [long], EncodeOptions(overflow=Overflow.ERROR))

    assert cut.usage.truncated == 1
    assert isinstance(refused, InputTooLong)


def test_zero_shot_labels_are_needed(both):
    with pytest.raises(InvalidInput, match="send labels"):
        both.preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), ExtractOptions())
