"""A Qwen3-VL of a few thousand random weights embeds what transformers' own model makes of the same message.

The reference runs one message at a time, unpacked, with positions of its own; the message is written here
as arXiv 2601.04720 has it. The model's published scripts were not run.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from PIL import Image
from tokenizers import AddedToken

from engine.adapters.forward.weights import BadWeights
from engine.adapters.vision.processors import reference_of
from engine.errors import InputTooLong, InvalidInput
from engine.requests import EncodeOptions, Item, Media, OutputType, Overflow, ScoreOptions, Task
from tests.engine.adapters import tiny_seeing
from tests.engine.adapters.tiny_decoders import EOS, byte_level
from tests.engine.adapters.tiny_texts import Served

DIM = tiny_seeing.TEXT["hidden_size"]
LONGEST = 200
SIZES = [(64, 48), (48, 64), (120, 24)]
IMAGES = [Image.effect_noise(size, 60 + 10 * place).convert("RGB") for place, size in enumerate(SIZES)]
WORDS = ["who?", "what does the levee cost?", "\n a line before", "x" * 90, ""]


def sent(*images: Image.Image) -> tuple[Media, ...]:
    made = []
    for image in images:
        out = io.BytesIO()
        image.save(out, "PNG")
        made.append(Media(out.getvalue()))
    return tuple(made)


ITEMS = [
    *[Item(text=text) for text in WORDS],
    *[Item(images=sent(image)) for image in IMAGES],
    Item(text="a noisy page", images=sent(IMAGES[0])),
    Item(text="two of them", images=sent(IMAGES[1], IMAGES[2])),
]
SHOWN = [*[[] for _ in WORDS], *[[image] for image in IMAGES], [IMAGES[0]], [IMAGES[1], IMAGES[2]]]


def qwen3_vl(to: Path, tied: bool = False, words: Sequence[str] = ()) -> Path:
    """`words` are one token each, behind all others."""
    torch.manual_seed(5)
    config = tiny_seeing.FAMILIES["qwen3_vl"].config()
    config.text_config.vocab_size += len(words)
    config.tie_word_embeddings = tied
    made = tf.AutoModelForImageTextToText.from_config(config)
    for weight in made.parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    made.save_pretrained(to)
    backend = byte_level()
    special = [*tiny_seeing.SPECIAL, *words]
    backend.add_special_tokens([AddedToken(token, special=True) for token in special])
    tf.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=EOS, pad_token=EOS).save_pretrained(to)
    tiny_seeing.FAMILIES["qwen3_vl"].images().save_pretrained(to)
    return to


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qwen3_vl(tmp_path_factory.mktemp("qwen3_vl"))


def served(path: Path, **given: Any) -> Served:
    fields = {
        **{"family": "multimodal_encoder", "outputs": ("dense",), "inputs": ("text", "image")},
        **{"max_tokens": LONGEST, "matryoshka": (16,), "dims": {"dense": DIM}},
        "prompts": {"query": "Retrieve images or text"},
    }
    return Served(path, **(fields | given))


@pytest.fixture(scope="module")
def qwen(path: Path) -> Served:
    return served(path)


def made(model: Served, items: list[Item], **asked: Any) -> list[np.ndarray]:
    jobs = model.preparer.prepare(Task.ENCODE, items, EncodeOptions(**asked))
    return [output.dense for output in model.model.run(jobs)]


@pytest.fixture(scope="module")
def expected(path: Path) -> Callable[[str], list[np.ndarray]]:
    """By instruction, the vectors of ITEMS, one at a time."""
    model = tf.AutoModel.from_pretrained(path).eval()
    images, tokenizer = reference_of(path), tf.AutoTokenizer.from_pretrained(path)
    pad = tiny_seeing.IDS["<|image_pad|>"]

    def one(instruction: str, item: Item, shown: list[Image.Image]) -> np.ndarray:
        seen = images(images=shown, return_tensors="pt") if shown else {}
        content = "".join(
            "<|vision_start|>" + "<|image_pad|>" * int(grid.prod() // 4) + "<|vision_end|>"
            for grid in seen.get("image_grid_thw", ())
        )
        text = (
            f"<|im_start|>system\n{instruction}<|im_end|>\n"
            f"<|im_start|>user\n{content}{item.text or ''}<|im_end|>\n<|im_start|>assistant\n"
        )
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        found = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=(ids == pad).int(),
            **seen,
        )
        row = found.last_hidden_state[0, -1]
        return torch.nn.functional.normalize(row, dim=0).numpy()

    def all_of(instruction: str) -> list[np.ndarray]:
        with torch.inference_mode():
            return [one(instruction, item, shown) for item, shown in zip(ITEMS, SHOWN, strict=True)]

    return all_of


def test_texts_images_and_both_together_get_the_vectors_of_transformers(
    qwen: Served, expected: Callable[[str], list[np.ndarray]], compared: Callable[..., None]
):
    theirs = expected("Represent the user's input.")

    together = made(qwen, ITEMS)
    alone = [made(qwen, [item])[0] for item in ITEMS]
    back = made(qwen, ITEMS[::-1])[::-1]

    for ours, single, reverse, their in zip(together, alone, back, theirs, strict=True):
        assert np.abs(ours - their).max() <= 1e-5
        assert np.abs(ours - single).max() <= 1e-5 and np.abs(ours - reverse).max() <= 1e-5
    assert np.abs(together[0] - together[1]).max() > 1e-2
    compared("multimodal_encoder", "tiny qwen3_vl", "transformers", together, theirs, alone)


def test_a_query_has_the_instruction_of_its_role_or_of_the_request(
    qwen: Served, expected: Callable[[str], list[np.ndarray]]
):
    queries = np.stack(made(qwen, ITEMS, is_query=True))
    asked = np.stack(made(qwen, ITEMS, instruction="Find floods!"))

    assert np.abs(queries - np.stack(expected("Retrieve images or text."))).max() <= 1e-5
    assert np.abs(asked - np.stack(expected("Find floods!"))).max() <= 1e-5


def test_scores_are_cosines_of_a_query_read_once(qwen: Served, expected: Callable[[str], list[np.ndarray]]):
    jobs = qwen.preparer.prepare(Task.SCORE, ITEMS, ScoreOptions(query=ITEMS[0]))

    scores = [output.score for output in qwen.model.run(jobs)]

    query = expected("Retrieve images or text.")[0]
    theirs = np.stack(expected("Represent the user's input.")) @ query
    assert scores == pytest.approx(theirs.tolist(), abs=1e-5)
    assert len({id(job.payload.parts[0]) for job in jobs}) == 1
    assert jobs[0].usage.input_tokens == len(jobs[0].payload.parts[0].ids) + len(jobs[0].payload.parts[1].ids)
    assert jobs[1].usage.input_tokens == len(jobs[1].payload.parts[1].ids)


def test_vectors_are_cut_and_a_damaged_image_disturbs_nobody(qwen: Served):
    damaged = Item(images=(Media(ITEMS[5].images[0].data[:200]),))
    items = [ITEMS[0], damaged, ITEMS[5]]
    jobs = qwen.preparer.prepare(Task.ENCODE, items, EncodeOptions(dimensions=16))

    first, bad, last = qwen.model.run(jobs)

    whole = made(qwen, [ITEMS[0]])[0][:16]
    assert np.abs(first.dense - whole / np.linalg.norm(whole)).max() <= 1e-5
    assert isinstance(bad, InvalidInput) and last.dense.shape == (16,)


def test_a_text_loses_its_end_and_images_are_never_cut(path: Path):
    model = served(path, max_tokens=110)
    (whole,) = model.preparer.prepare(Task.ENCODE, [ITEMS[8]], EncodeOptions())
    (cut,) = model.preparer.prepare(
        Task.ENCODE, [Item(text="a noisy page" + "x" * 90, images=ITEMS[8].images)], EncodeOptions()
    )
    (error,) = model.preparer.prepare(
        Task.ENCODE, [Item(text="x" * 90)], EncodeOptions(overflow=Overflow.ERROR)
    )
    narrow = served(path, max_tokens=80)
    (full,) = narrow.preparer.prepare(Task.ENCODE, [ITEMS[9]], EncodeOptions())

    pads = [int((job.payload.parts[0].ids == tiny_seeing.IDS["<|image_pad|>"]).sum()) for job in (whole, cut)]
    assert pads[0] == pads[1] > 0
    assert len(cut.payload.parts[0].ids) == 110 and cut.usage.truncated == 1 and whole.usage.truncated == 0
    assert isinstance(error, InputTooLong) and isinstance(full, InputTooLong)


def test_what_cannot_be_done_is_said(path: Path, qwen: Served):
    bad = [
        Item(),
        Item(text="<|image_pad|>"),
        Item(text="a", audio=Media(b"")),
        Item(images=sent(*IMAGES * 3)),
    ]

    found = qwen.preparer.prepare(Task.ENCODE, bad, EncodeOptions())

    said = ("no text", "cannot be sent by themselves", "audio", "at most 8")
    for index, (error, words) in enumerate(zip(found, said, strict=True)):
        assert isinstance(error, InvalidInput) and words in error.message and error.item == index
    with pytest.raises(InvalidInput, match="cannot do output_type 'sparse'"):
        qwen.preparer.prepare(Task.ENCODE, ITEMS, EncodeOptions(output_types=(OutputType.SPARSE,)))
    with pytest.raises(InputTooLong, match="the query is") as raised:
        long = ScoreOptions(Item(text="x" * LONGEST), overflow=Overflow.ERROR)
        qwen.preparer.prepare(Task.SCORE, ITEMS, long)
    assert raised.value.item is None
    with pytest.raises(BadWeights, match=f"the model makes {DIM}"):
        served(path, dims={"dense": 8})


def test_a_bound_of_pixels_makes_images_smaller(path: Path, qwen: Served):
    small = served(path, options={"max_pixels": 1024})

    (few,), (many,) = (
        model.preparer.prepare(Task.ENCODE, [ITEMS[5]], EncodeOptions()) for model in (small, qwen)
    )

    assert few.cost < many.cost
    assert small.model.run([few])[0].dense.shape == (DIM,)


def test_it_leaves_its_device_whole(path: Path):
    model = served(path)
    held = model.model.tensors()

    assert model.footprint.weights_bytes > 0 and held
    model.model.unload()
    assert sum(tensor.nbytes for tensor in held.values()) == 0
