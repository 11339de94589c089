from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoTokenizer,
    BertConfig,
    GroundingDinoConfig,
    GroundingDinoForObjectDetection,
    Owlv2Config,
    Owlv2ForObjectDetection,
    OwlViTConfig,
    OwlViTForObjectDetection,
    SwinConfig,
)
from transformers.models.grounding_dino.image_processing_pil_grounding_dino import (
    GroundingDinoImageProcessorPil,
)
from transformers.models.owlv2.image_processing_pil_owlv2 import Owlv2ImageProcessorPil
from transformers.models.owlvit.image_processing_pil_owlvit import OwlViTImageProcessorPil

from engine.adapters.forward.weights import BadWeights
from engine.adapters.open_vocabulary_detector import FAMILY
from engine.errors import InvalidInput, NotFinite
from engine.requests import ExtractOptions, Item, Media, Task
from tests.engine.adapters.tiny_vision import entry, noise, png, save, shown, words

SPEC = entry("open_vocabulary_detector", Task.EXTRACT)
SIZES = [(64, 48), (100, 48), (48, 64), (64, 48)]
IMAGES = [noise(*size, seed=i) for i, size in enumerate(SIZES)]
ASKED = [("cat", "red car"), ("a remote control",), ("Dog", "cat", "blue"), ("dog", "car")]
TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def owl(path, config, model, processor):
    words(path, "<start>", "<end>", "!", **{"!": 0, "<end>": 63})
    text = dict(TOWER, vocab_size=64, max_position_embeddings=8, eos_token_id=63, bos_token_id=62)
    vision = {**TOWER, "image_size": 32, "patch_size": 8}
    made = config(text_config=text, vision_config=vision, projection_dim=32)
    return save(path, model(made), processor(size={"height": 32, "width": 32}), 0.1)


def owlvit(path):
    return owl(path, OwlViTConfig, OwlViTForObjectDetection, OwlViTImageProcessorPil)


def owlv2(path):
    return owl(path, Owlv2Config, Owlv2ForObjectDetection, Owlv2ImageProcessorPil)


def grounding_dino(path):
    words(path, "[CLS]", "[SEP]", "[PAD]", **{"[PAD]": 0, "[CLS]": 101, "[SEP]": 102, ".": 1012, "?": 1029})
    backbone = SwinConfig(
        embed_dim=8, depths=[1, 1, 1], num_heads=[1, 2, 2], window_size=4, image_size=64,
        out_features=["stage2", "stage3"],
    )  # fmt: skip
    text = BertConfig(
        vocab_size=1100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64,
    )  # fmt: skip
    config = GroundingDinoConfig(
        backbone_config=backbone, text_config=text, num_queries=15, d_model=32, encoder_layers=2,
        decoder_layers=2, encoder_ffn_dim=32, decoder_ffn_dim=32, encoder_attention_heads=4,
        decoder_attention_heads=4, num_feature_levels=3, max_text_len=48,
    )  # fmt: skip
    processor = GroundingDinoImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 128})
    return save(path, GroundingDinoForObjectDetection(config), processor, 0.05)


class Both:
    def __init__(self, path, make):
        self.path = path
        self.path = path
        self.reference = make(path)
        self.preparer = FAMILY.preparer(SPEC, path)
        self.model = FAMILY.load(SPEC, path, "cpu")
        self.processor = self.preparer._processor.reference
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.grounds = make is grounding_dino

    def detect(self, images, asked, threshold=0.0):
        jobs = [
            job
            for image, labels in zip(images, asked, strict=True)
            for job in self.preparer.prepare(
                Task.EXTRACT, shown(image), ExtractOptions(labels=labels, threshold=threshold)
            )
        ]
        return [answer.objects for answer in self.model.run(jobs)]

    def expected(self, image, labels):
        """Score of each box for each label, and boxes in pixels, most certain first."""
        seen = self.processor(image, return_tensors="pt")
        if self.grounds:
            text = ". ".join(label.lower() for label in labels) + "."
            tokens = self.tokenizer(text, return_tensors="pt")
        else:
            tokens = self.tokenizer(list(labels), padding="max_length", max_length=8, return_tensors="pt")
            tokens.pop("token_type_ids", None)
        with torch.inference_mode():
            out = self.reference(**seen, **tokens)
        chances = out.logits.sigmoid()[0]
        if self.grounds:
            ids = tokens["input_ids"][0].tolist()
            ends = [place for place, token in enumerate(ids) if token == 1012]
            starts = [1, *[end + 1 for end in ends[:-1]]]
            chances = torch.stack([chances[:, a:b].amax(1) for a, b in zip(starts, ends, strict=True)], 1)
            boxes = out.pred_boxes[0]
            size = torch.tensor([image.width, image.height])
            boxes = torch.cat([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
            boxes = boxes * torch.cat([size, size])
        else:
            (found,) = self.processor.post_process_object_detection(
                out, threshold=0.0, target_sizes=[(image.height, image.width)]
            )
            boxes = found["boxes"]
        order = chances.amax(1).argsort(descending=True, stable=True)
        return chances[order], boxes[order]


@pytest.fixture(scope="module", params=[owlvit, owlv2, grounding_dino])
def both(request, tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = Both(tmp_path_factory.mktemp(request.param.__name__), request.param)
    yield made
    made.model.unload()


def rows(objects):
    return np.array([[o.score, *o.bbox] for o in objects])


def test_different_labels_in_one_batch_give_what_each_gives_alone(both, compared):
    together = both.detect(IMAGES, ASKED)
    seen = []

    for image, labels, objects in zip(IMAGES, ASKED, together, strict=True):
        chances, boxes = both.expected(image, labels)
        scores = chances.amax(1)
        found = rows(objects)
        edges = np.array([image.width, image.height] * 2)
        assert np.abs(found[:, 0] - scores.numpy()).max() <= 1e-4
        assert np.abs(found[:, 1:] - boxes.numpy().clip(0, edges)).max() <= 1e-4 * max(image.size)
        said = chances[range(len(objects)), [labels.index(o.label) for o in objects]]
        assert (scores - said).max() <= 1e-5
        (alone,) = both.detect([image], [labels])
        assert np.abs(found - rows(alone)).max() <= 1e-3
        assert [o.label for o in objects] == [o.label for o in alone]
        whole = np.array([1, *edges])
        theirs = np.column_stack([scores.numpy(), boxes.numpy().clip(0, edges)])
        seen.append((found / whole, theirs / whole, rows(alone) / whole))
    name = f"tiny {both.path.name[:-1]}"
    compared("open_vocabulary_detector", name, "transformers", *zip(*seen, strict=True))


def test_a_network_that_is_not_a_number_found_nothing_and_says_so(both):
    model = FAMILY.load(SPEC, both.path, "cpu")
    for weight in model.tensors().values():
        if weight.is_floating_point():
            weight.fill_(float("nan"))
    jobs = both.preparer.prepare(
        Task.EXTRACT, shown(*IMAGES[:2]), ExtractOptions(labels=("cat",), threshold=0.1)
    )

    assert [type(answer) for answer in model.run(jobs)] == [NotFinite] * 2


def test_boxes_are_of_the_image_as_it_is_meant_to_be_seen(both):
    turned = Item(images=(Media(png(IMAGES[1].transpose(Image.Transpose.ROTATE_90), orientation=6)),))
    options = ExtractOptions(labels=("cat",), threshold=0.0)
    jobs = both.preparer.prepare(Task.EXTRACT, [*shown(IMAGES[1]), turned], options)

    plain, oriented = (answer.objects for answer in both.model.run(jobs))

    assert np.abs(rows(plain) - rows(oriented)).max() <= 1e-3


def test_a_threshold_and_the_entrys_labels_are_kept_to(both):
    (everything,) = both.detect(IMAGES[:1], ASKED[:1])
    middle = everything[len(everything) // 2].score
    usual = FAMILY.preparer(SPEC.model_copy(update={"options": {"labels": ["cat", "red car"]}}), both.path)

    (likely,) = both.detect(IMAGES[:1], ASKED[:1], threshold=middle)
    (same,) = both.model.run(usual.prepare(Task.EXTRACT, shown(IMAGES[0]), ExtractOptions(threshold=middle)))

    assert likely == tuple(o for o in everything if o.score >= middle)
    assert same.objects == likely
    with pytest.raises(InvalidInput, match="send labels"):
        both.preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), ExtractOptions())


def test_labels_that_cannot_be_read_together_are_refused(both):
    for labels in (("cat. dog",), tuple(f"cat {n}" for n in range(30))):
        asked = ExtractOptions(labels=labels)
        if both.grounds:
            with pytest.raises(InvalidInput, match=r"full stop|Send fewer"):
                both.preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), asked)
        else:
            (answer,) = both.model.run(both.preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), asked))
            assert {thing.label for thing in answer.objects} <= {*labels}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_the_same_scores(both, dtype):
    if both.grounds:
        with pytest.raises(BadWeights, match="dtype: float32"):
            FAMILY.footprint(SPEC.model_copy(update={"dtype": str(dtype)[6:]}), both.path)
        return
    half = FAMILY.load(SPEC, both.path, "cpu")
    half._model.to(dtype)
    jobs = both.preparer.prepare(
        Task.EXTRACT, shown(IMAGES[0]), ExtractOptions(labels=("cat",), threshold=0.0)
    )

    (answer,) = half.run(jobs)
    (whole,) = both.model.run(jobs)

    pairs = [np.sort(rows(found.objects)[:, 0]) for found in (answer, whole)]
    assert np.dot(*pairs) / np.prod([np.linalg.norm(p) for p in pairs]) >= 0.999
    half.unload()
