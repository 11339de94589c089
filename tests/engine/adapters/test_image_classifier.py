from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    ConvNextConfig,
    ConvNextForImageClassification,
    ConvNextModel,
    Dinov2Config,
    Dinov2Model,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from engine.adapters import image_classifier, image_encoder
from engine.adapters.forward.weights import BadWeights
from engine.errors import InvalidInput
from engine.requests import EncodeOptions, ExtractOptions, Item, Task
from tests.engine.adapters.tiny_vision import entry, noise, save, shown

NAMES = ["cat", "dog", "crane", "red car", "tree", "house", "crane"]
LABELS = dict(enumerate(NAMES))
IMAGES = [noise(*size, seed=i) for i, size in enumerate([(64, 48), (40, 90), (300, 33), (32, 32)])]
TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
VIT = ViTConfig(image_size=32, patch_size=8, id2label=LABELS, **TOWER)
CONV = ConvNextConfig(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], id2label=LABELS)
SQUARE = ViTImageProcessorPil(size={"height": 32, "width": 32})
CROPPED = ConvNextImageProcessorPil(size={"shortest_edge": 32}, crop_pct=0.875)
SPEC = entry("image_classifier", Task.EXTRACT, labels={"animal": "cat|dog"})


@pytest.fixture(scope="module", params=["vit", "convnext"])
def both(request, tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp(request.param)
    made, processor = (
        (ViTForImageClassification(VIT), SQUARE)
        if request.param == "vit"
        else (ConvNextForImageClassification(CONV), CROPPED)
    )
    reference = save(path, made, processor, 0.2)
    model = image_classifier.FAMILY.load(SPEC, path, "cpu")
    yield path, reference, processor, model, image_classifier.FAMILY.preparer(SPEC, path)
    model.unload()


def chances(reference, processor, image):
    with torch.inference_mode():
        return reference(**processor(image, return_tensors="pt")).logits.softmax(-1)[0].numpy()


def test_chances_are_the_reference_ones_in_any_company(both, compared):
    path, reference, processor, model, preparer = both
    jobs = preparer.prepare(Task.EXTRACT, shown(*IMAGES), ExtractOptions(extra={"top_k": 9}))

    found, alone = model.run(jobs), [model.run([job])[0] for job in jobs]
    seen = []

    for image, answer in zip(IMAGES, found, strict=True):
        expected = chances(reference, processor, image)
        said = {c.label: c.score for c in answer.classifications}
        best = {name: max(expected[i] for i in LABELS if LABELS[i] == name) for name in NAMES}
        assert said == pytest.approx(best, abs=1e-4)
        assert [*said.values()] == sorted(said.values(), reverse=True)
        seen.append(([*said.values()], [best[name] for name in said]))
    scores = [[c.score for c in answer.classifications] for answer in alone]
    compared("image_classifier", f"tiny {path.name[:-1]}", "transformers", *zip(*seen, strict=True), scores)


def test_labels_threshold_and_top_choose_what_is_told(both):
    *_, model, preparer = both

    def told(**options):
        return model.run(preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), ExtractOptions(**options)))[0]

    assert len(told().classifications) == 5
    assert {c.label for c in told(labels=("Animal", "tree")).classifications} == {"Animal", "tree"}
    likely = told(threshold=0.2, extra={"top_k": 7}).classifications
    assert all(c.score >= 0.2 for c in likely)
    with pytest.raises(InvalidInput, match="top_k"):
        told(extra={"top_k": 0})
    with pytest.raises(InvalidInput, match="unicorn"):
        told(labels=("unicorn",))


def test_a_bad_item_has_its_own_error(both):
    prepared = both[-1].prepare(Task.EXTRACT, [*shown(IMAGES[0]), Item(text="cat")], ExtractOptions())

    assert (type(prepared[1]), prepared[1].item) == (InvalidInput, 1)


ENCODERS = {
    "dinov2": (
        lambda: Dinov2Model(Dinov2Config(image_size=32, patch_size=8, **TOWER)),
        BitImageProcessorPil(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}),
    ),
    "vit": (lambda: ViTModel(VIT), SQUARE),
    "convnext": (lambda: ConvNextModel(CONV), CROPPED),
}
POOLED = {
    None: lambda out: out.pooler_output.flatten(1),
    "cls": lambda out: out.last_hidden_state[:, 0],
    "mean": lambda out: (
        out.last_hidden_state.mean((2, 3))
        if out.last_hidden_state.ndim == 4
        else out.last_hidden_state[:, 1:].mean(1)
    ),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_are_pooled_as_the_entry_says(tmp_path, name, compared):
    torch.manual_seed(0)
    make, processor = ENCODERS[name]
    reference = save(tmp_path, make(), processor, 0.1)
    with torch.inference_mode():
        outs = [reference(**processor(image, return_tensors="pt")) for image in IMAGES]

    for pooling, pooled in POOLED.items():
        spec = entry("image_encoder", Task.ENCODE, pooling=pooling, normalize=False)
        if name == "convnext" and pooling == "cls":
            with pytest.raises(BadWeights, match="pooling: mean"):
                image_encoder.FAMILY.load(spec, tmp_path, "cpu")
            continue
        model = image_encoder.FAMILY.load(spec, tmp_path, "cpu")
        preparer = image_encoder.FAMILY.preparer(spec, tmp_path)
        jobs = preparer.prepare(Task.ENCODE, shown(*IMAGES), EncodeOptions())
        found = np.stack([answer.dense for answer in model.run(jobs)])
        expected = torch.cat([pooled(out) for out in outs]).numpy()
        assert np.abs(found - expected).max() <= 1e-4
        said = f"tiny {name}, pooling {pooling or 'its own'}"
        compared("image_encoder", said, "transformers", found, expected)
        model._model.bfloat16()
        half = np.stack([answer.dense for answer in model.run(jobs)])
        norms = np.linalg.norm(half, axis=1) * np.linalg.norm(found, axis=1)
        assert ((half * found).sum(1) / norms).min() >= 0.999
        model.unload()
