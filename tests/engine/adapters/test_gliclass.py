"""GLiClass beside the library's own pipeline, on tiny random models of its own configuration class."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import transformers as tf

from engine.entry import ModelSpec, Source
from engine.errors import InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Item, Overflow, Task
from tests.engine.adapters.tiny_tokenizer import tokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import gliclass

    from engine.adapters.gliclass import FAMILY

TEXTS = ["the word on the person", "Ulm in an word", "a", "the date " * 30]
LABELS = ("person", "place", "date and word")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = {}

    def folder(name: str, **more: object):
        if name in made:
            return made[name]
        path = made[name] = tmp_path_factory.mktemp(name)
        tokenizer(path)
        marks = tf.AutoTokenizer.from_pretrained(path)
        marks.add_tokens(["<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>"], special_tokens=True)
        marks.save_pretrained(path)
        encoder = tf.DebertaV2Config(
            vocab_size=len(marks),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            relative_attention=True,
            position_biased_input=False,
            pos_att_type=["p2c", "c2p"],
            pad_token_id=0,
            type_vocab_size=0,
        )
        config = gliclass.GLiClassModelConfig(
            encoder_config=encoder,
            encoder_model="none",
            class_token_index=marks.convert_tokens_to_ids("<<LABEL>>"),
            text_token_index=marks.convert_tokens_to_ids("<<SEP>>"),
            vocab_size=len(marks),
            **more,
        )
        torch.manual_seed(2)
        model = gliclass.GLiClassModel(config)
        for parameter in model.parameters():
            parameter.data.mul_(3) if parameter.dim() > 1 else None
        model.save_pretrained(path)
        return path

    return folder


def spec(path, **more: object) -> ModelSpec:
    given = {"id": "a/b", "family": "gliclass", "tasks": ("extract",), "devices": ("cpu",)}
    return ModelSpec(**given, sources=(Source(directory=str(path)),), **more)


def jobs_of(path, texts, labels, entry=None, **options):
    preparer = FAMILY.preparer(entry or spec(path), path)
    return preparer.prepare(
        Task.EXTRACT, [Item(text=text) for text in texts], ExtractOptions(labels=labels, **options)
    )


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("plain", {"prompt_first": True}),
        ("text_first", {"prompt_first": False, "scorer_type": "weighted-dot"}),
        ("average", {"prompt_first": True, "class_token_pooling": "average", "pooling_strategy": "avg"}),
        ("normal", {"prompt_first": True, "normalize_features": True, "extract_text_features": True}),
        ("lstm", {"prompt_first": True, "use_lstm": True, "scorer_type": "mlp", "embed_class_token": False}),
    ],
)
def test_chances_are_those_of_the_reference_pipeline(name, config, folder, compared):
    path = folder(name, **config)
    model = FAMILY.load(spec(path), path, "cpu")
    reference = gliclass.ZeroShotClassificationPipeline(
        gliclass.GLiClassModel.from_pretrained(path),
        tf.AutoTokenizer.from_pretrained(path),
        device="cpu",
        progress_bar=False,
    )

    seen: list[tuple[float, float]] = []
    for multi, kind in [(True, "multi-label"), (False, "single-label")]:
        ours = model.run(jobs_of(path, TEXTS, LABELS, threshold=0.0, extra={"multi_label": multi}))
        for text, answer in zip(TEXTS, ours, strict=True):
            (theirs,) = reference([text], list(LABELS), threshold=0.0, classification_type=kind)
            found = {c.label: c.score for c in answer.classifications}
            assert list(found.values()) == sorted(found.values(), reverse=True)
            for said in theirs:
                seen.append((found[said["label"]], said["score"]))
                assert np.isclose(found[said["label"]], said["score"], atol=1e-5)
    compared("gliclass", f"tiny {name}", "gliclass", *zip(*seen, strict=True))


def test_texts_with_other_labels_share_a_batch_and_stay_what_they_are_alone(folder):
    path = folder("plain", prompt_first=True)
    model = FAMILY.load(spec(path), path, "cpu")
    asked = [LABELS[: 1 + i % 3] for i in range(16)]
    jobs = [jobs_of(path, [TEXTS[i % 4]], labels, threshold=0.0)[0] for i, labels in enumerate(asked)]

    for together, job in zip(model.run(jobs), jobs, strict=True):
        (alone,) = model.run([job])
        ours, theirs = ({c.label: c.score for c in a.classifications} for a in (together, alone))
        assert ours.keys() == theirs.keys()
        assert np.allclose([ours[label] for label in ours], [theirs[label] for label in ours], atol=1e-6)


def test_of_a_long_text_only_the_text_is_cut_or_read_in_windows(folder):
    path = folder("plain", prompt_first=True)
    entry = spec(path, max_tokens=48)
    long = "the word " * 60

    (windows,) = jobs_of(path, [long], LABELS, entry, overflow=Overflow.WINDOW)
    (cut,) = jobs_of(path, [long], LABELS, entry, overflow=Overflow.TRUNCATE)
    (refused,) = jobs_of(path, [long], LABELS, entry, overflow=Overflow.ERROR)

    labels = windows.payload.windows[0].tolist().count(_marker(path))
    assert labels == len(LABELS)
    assert len(windows.payload.windows) > 1
    assert max(map(len, windows.payload.windows)) <= 48
    assert (len(cut.payload.windows), cut.usage.truncated) == (1, 1)
    assert isinstance(refused, InputTooLong)
    answer = FAMILY.load(entry, path, "cpu").run([windows])[0]
    assert all(0 <= c.score <= 1 for c in answer.classifications)


def test_labels_that_leave_no_room_are_refused_and_so_is_none_at_all(folder):
    path = folder("plain", prompt_first=True)
    many = tuple(f"label {i}" for i in range(40))

    assert isinstance(jobs_of(path, ["a"], many, spec(path, max_tokens=48))[0], InputTooLong)
    with pytest.raises(InvalidInput, match="labels"):
        jobs_of(path, ["a"], ())


def _marker(path) -> int:
    return int(tf.AutoTokenizer.from_pretrained(path).convert_tokens_to_ids("<<LABEL>>"))
