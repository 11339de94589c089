from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    DetrConfig,
    DetrForObjectDetection,
    DFineConfig,
    DFineForObjectDetection,
    ResNetConfig,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrV2Config,
    RTDetrV2ForObjectDetection,
    YolosConfig,
    YolosForObjectDetection,
)
from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil
from transformers.models.rt_detr.image_processing_pil_rt_detr import RTDetrImageProcessorPil
from transformers.models.yolos.image_processing_pil_yolos import YolosImageProcessorPil

from engine.adapters.object_detector import FAMILY
from engine.errors import InvalidInput, NotFinite
from engine.requests import ExtractOptions, Item, Media, Task
from tests.engine.adapters.tiny_vision import entry, noise, png, save, shown

LABELS = {0: "cat", 1: "dog", 2: "red car"}
SPEC = entry("object_detector", Task.EXTRACT, labels={"animal": "cat|dog"})
SIZES = [(64, 48), (100, 48), (48, 64), (64, 48), (200, 80)]
IMAGES = [noise(*size, seed=i) for i, size in enumerate(SIZES)]
ATTENTION = {
    "d_model": 32,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_queries": 12, "id2label": LABELS}
SMALL = DetrImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 128})
SQUARE = RTDetrImageProcessorPil(size={"height": 64, "width": 64})


def detr():
    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage4"],
    )  # fmt: skip
    config = DetrConfig(
        use_timm_backbone=False, backbone=None, backbone_config=backbone, **ATTENTION, **HEADS
    )
    return DetrForObjectDetection(config), SMALL, {}


def yolos():
    config = YolosConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=[64, 96], patch_size=16, num_detection_tokens=9, id2label=LABELS,
    )  # fmt: skip
    return (
        YolosForObjectDetection(config),
        YolosImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 128}),
        {},
    )


def hybrid(config, model, backbone):
    made = config(
        backbone_config=backbone, encoder_hidden_dim=32, encoder_in_channels=[16, 16, 16],
        decoder_in_channels=[32, 32, 32], anchor_image_size=None, num_denoising=0, **ATTENTION, **HEADS,
    )  # fmt: skip
    return model(made), SQUARE, {}


def rt_backbone():
    from transformers import RTDetrResNetConfig

    return RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"], out_indices=[2, 3, 4],
    )  # fmt: skip


def rt_detr():
    return hybrid(RTDetrConfig, RTDetrForObjectDetection, rt_backbone())


def rt_detr_v2():
    return hybrid(RTDetrV2Config, RTDetrV2ForObjectDetection, rt_backbone())


def d_fine():
    from transformers import HGNetV2Config

    backbone = HGNetV2Config(
        stem_channels=[3, 8, 8], stage_in_channels=[8, 16, 16, 16], stage_mid_channels=[8, 8, 8, 8],
        stage_out_channels=[16, 16, 16, 16], stage_num_blocks=[1, 1, 1, 1], stage_numb_of_layers=[1, 1, 1, 1],
        hidden_sizes=[16, 16, 16, 16], depths=[1, 1, 1, 1], embedding_size=8,
        out_features=["stage2", "stage3", "stage4"], return_idx=[1, 2, 3],
    )  # fmt: skip
    return hybrid(DFineConfig, DFineForObjectDetection, backbone)


class Both:
    def __init__(self, path, make):
        reference, self.processor, self.options = make()
        self.path = path
        self.reference = save(path, reference, self.processor, 0.1)
        self.preparer = FAMILY.preparer(SPEC, path)
        self.model = FAMILY.load(SPEC, path, "cpu")

    def detect(self, items, *labels, threshold=0.0):
        options = ExtractOptions(labels=labels, threshold=threshold)
        return self.model.run(self.preparer.prepare(Task.EXTRACT, items, options))

    def expected(self, image):
        with torch.inference_mode():
            out = self.reference(**self.processor(image, return_tensors="pt"))
        (found,) = self.processor.post_process_object_detection(
            out, threshold=0.0, target_sizes=[(image.height, image.width)]
        )
        return found


@pytest.fixture(scope="module", params=[detr, yolos, rt_detr, rt_detr_v2, d_fine])
def both(request, tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = Both(tmp_path_factory.mktemp(request.param.__name__), request.param)
    yield made
    made.model.unload()


def rows(objects):
    return np.array([[o.score, *o.bbox] for o in objects])


def test_boxes_are_the_reference_ones_whatever_runs_beside(both, compared):
    together = both.detect(shown(*IMAGES))
    seen = []

    for image, answer in zip(IMAGES, together, strict=True):
        expected = both.expected(image)
        order = expected["scores"].argsort(descending=True, stable=True)
        boxes = expected["boxes"][order].numpy()
        boxes[:, 0::2] = boxes[:, 0::2].clip(0, image.width)
        boxes[:, 1::2] = boxes[:, 1::2].clip(0, image.height)
        assert len(answer.objects) == len(order) > 5
        found = rows(answer.objects)
        assert np.abs(found[:, 0] - expected["scores"][order].numpy()).max() <= 1e-4
        assert np.abs(found[:, 1:] - boxes).max() <= 1e-4 * image.width
        assert [o.label for o in answer.objects] == [LABELS[i] for i in expected["labels"][order].tolist()]
        alone = rows(both.detect(shown(image))[0].objects)
        assert np.abs(found - alone).max() <= 1e-3
        edges = np.array([1, *[image.width, image.height] * 2])
        theirs = np.column_stack([expected["scores"][order].numpy(), boxes])
        seen.append((found / edges, theirs / edges, alone / edges))
    compared("object_detector", f"tiny {both.path.name[:-1]}", "transformers", *zip(*seen, strict=True))


def test_a_network_that_is_not_a_number_found_nothing_and_says_so(both):
    model = FAMILY.load(SPEC, both.path, "cpu")
    for weight in model.tensors().values():
        if weight.is_floating_point():
            weight.fill_(float("nan"))
    jobs = both.preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), ExtractOptions(threshold=0.1))

    assert [type(answer) for answer in model.run(jobs)] == [NotFinite]


def test_boxes_are_of_the_image_as_it_is_meant_to_be_seen(both):
    turned = png(IMAGES[1].transpose(Image.Transpose.ROTATE_90), orientation=6)

    plain, oriented = both.detect([*shown(IMAGES[1]), Item(images=(Media(turned),))])

    assert np.abs(rows(plain.objects) - rows(oriented.objects)).max() <= 1e-3


def test_labels_and_threshold_choose_what_is_told(both):
    everything = both.detect(shown(IMAGES[0]))[0].objects
    middle = everything[len(everything) // 2].score

    animals = both.detect(shown(IMAGES[0]), "Animal")[0].objects
    likely = both.detect(shown(IMAGES[0]), threshold=middle)[0].objects

    assert len(animals) == sum(o.label in ("cat", "dog") for o in everything)
    assert {o.label for o in animals} <= {"Animal"}
    assert [o.score for o in likely] == [o.score for o in everything if o.score >= middle]
    with pytest.raises(InvalidInput, match="'unicorn'; it can give: animal, cat, dog, red car"):
        both.detect(shown(IMAGES[0]), "unicorn")


def test_a_damaged_image_fails_alone(both):
    cut = png(IMAGES[4])[:2000]

    damaged, fine, none = both.detect(
        [Item(images=(Media(cut),)), *shown(IMAGES[0])]
    ) + both.preparer.prepare(Task.EXTRACT, [Item(text="cat")], ExtractOptions())

    assert (type(damaged), damaged.item) == (InvalidInput, 0)
    assert fine.objects
    assert (type(none), none.item) == (InvalidInput, 0)


def test_cost_is_what_goes_through_the_network(both):
    (job,) = both.preparer.prepare(Task.EXTRACT, shown(IMAGES[4]), ExtractOptions())

    seen = both.processor(IMAGES[4], return_tensors="np")["pixel_values"][0]
    # YOLOS rounds to whole patches
    assert job.cost == pytest.approx(seen[0].size + 200 * 80 // 50, rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_the_same_boxes(both, dtype):
    half = FAMILY.load(SPEC, both.path, "cpu")
    half._model.to(dtype)
    seen = both.processor(IMAGES[0], return_tensors="pt")

    with torch.inference_mode():
        whole = both.reference(**seen).last_hidden_state.flatten()
        cast = {k: v.to(dtype) if v.is_floating_point() else v for k, v in seen.items()}
        found = half._model(**cast).last_hidden_state.flatten().float()

    # D-FINE takes its queries by rank, which the few digits of bfloat16 change
    ranked = isinstance(both.reference, DFineForObjectDetection) and dtype == torch.bfloat16
    assert torch.cosine_similarity(whole, found, dim=0) >= (0.98 if ranked else 0.999)
    assert half.run(both.preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), ExtractOptions(threshold=0)))[
        0
    ].objects
    half.unload()
