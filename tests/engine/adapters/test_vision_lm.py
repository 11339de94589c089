from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers
from PIL import Image
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.llava.processing_llava import LlavaProcessor
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.paligemma.processing_paligemma import PaliGemmaProcessor

from engine.adapters.causal_lm import Prompts
from engine.adapters.family import Prepared
from engine.adapters.forward.weights import BadWeights
from engine.adapters.generation.decoder import Decoder
from engine.adapters.vision_lm import FAMILY
from engine.catalog import Limits
from engine.errors import EngineError, InputTooLong, InvalidInput, ResourceExhausted
from engine.requests import GenerateOptions, Item, Media, Task
from tests.engine.adapters.generating import answer, run
from tests.engine.adapters.tiny_decoders import CONFIGS
from tests.engine.adapters.tiny_decoders import save as save_words
from tests.engine.adapters.tiny_seeing import FAMILIES, IDS, Reference, save, spec
from tests.engine.adapters.tiny_vision import noise, png

WIDE, TALL, SMALL = noise(70, 40), noise(30, 64, 2), noise(20, 20, 3)
STREAMS: Sequence[tuple[str, tuple[Image.Image, ...], int]] = [
    ("What is this?", (WIDE,), 12),
    ("Once upon a time", (), 20),
    ("Which of them is larger, the first or the second?", (TALL, WIDE), 9),
    ("And here?", (SMALL,), 15),
]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def smolvlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("smolvlm"), "smolvlm")


@pytest.fixture(scope="module")
def decoder(smolvlm: Path) -> Decoder:
    """Nothing runs on it before a test, nor after."""
    return FAMILY.load(spec(smolvlm), smolvlm, "cpu")


@cache
def preparer_of(path: Path) -> Prompts:
    return FAMILY.preparer(spec(path), path)


def sent(*images: Image.Image) -> tuple[Media, ...]:
    return tuple(Media(png(image)) for image in images)


def turn(text: str, images: int) -> dict[str, object]:
    return {"role": "user", "content": [*[{"type": "image"}] * images, {"type": "text", "text": text}]}


def tried(path: Path, text: str, images: Sequence[Image.Image], **options: object) -> Prepared | EngineError:
    asked = GenerateOptions(messages=(turn(text, len(images)),), **options)
    (prepared,) = preparer_of(path).prepare(Task.GENERATE, [Item(images=sent(*images))], asked)
    return prepared


def prepare(path: Path, text: str, images: Sequence[Image.Image] = (), **options: object) -> Prepared:
    prepared = tried(path, text, images, **options)
    assert isinstance(prepared, Prepared), prepared
    return prepared


@pytest.mark.parametrize("name", FAMILIES)
def test_streams_with_and_without_images_answer_together_as_transformers_does_alone(name, tmp_path, compared):
    path = save(tmp_path, name)
    model, alone = FAMILY.load(spec(path), path, "cpu"), Reference(path, name)
    streams = STREAMS * 4 if name == "smolvlm" else STREAMS
    jobs = {
        str(at): prepare(path, text, images, max_new_tokens=most)
        for at, (text, images, most) in enumerate(streams)
    }
    early, late = dict(list(jobs.items())[:2]), dict(list(jobs.items())[2:])

    step_by_step = run(model, early, {}, late)
    in_long_quanta = run(model, early, late, seconds=0.02)

    seen = []
    for at, (_, images, most) in enumerate(STREAMS):
        expected = alone.greedy(jobs[str(at)].payload.ids.tolist(), images, most)
        seen.append((repr(list(answer(step_by_step[str(at)]).token_ids)), repr(expected)))
        for said in (step_by_step, in_long_quanta):
            for copy in range(at, len(streams), len(STREAMS)):
                assert list(answer(said[str(copy)]).token_ids) == expected, (at, copy)
    compared("vision_lm", f"tiny {name}", "transformers", *zip(*seen, strict=True))


def test_prompts_are_spelled_as_the_processors_of_transformers_spell_them(smolvlm, tmp_path):
    llava = save(tmp_path / "llava", "llava")
    text = "What is this?"
    for path, image_token, processor in (
        (smolvlm, "<image>", lambda t: Idefics3Processor(FAMILIES["idefics3"].images(), t, image_seq_len=4)),
        (
            llava,
            "<image>",
            lambda t: LlavaProcessor(
                FAMILIES["llava"].images(),
                t,
                patch_size=8,
                vision_feature_select_strategy="default",
                num_additional_image_tokens=1,
            ),
        ),
    ):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        rendered = tokenizer.apply_chat_template([turn(text, 2)], tokenize=False, add_generation_prompt=True)
        assert rendered.count(image_token) == 2
        expected = processor(tokenizer)(images=[WIDE, TALL], text=rendered)["input_ids"][0]

        assert prepare(path, text, (WIDE, TALL)).payload.ids.tolist() == list(expected)


def test_prompts_of_gemma_are_spelled_as_its_processor_spells_them(tmp_path):
    path = save(tmp_path, "gemma3")
    names = {"boi_token": "<start_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        path, extra_special_tokens={**names, "eoi_token": "<end_of_image>"}
    )
    processor = Gemma3Processor(FAMILIES["gemma3"].images(), tokenizer, image_seq_length=16)
    rendered = tokenizer.apply_chat_template([turn("?", 2)], tokenize=False, add_generation_prompt=True)
    expected = processor(images=[[WIDE, TALL]], text=rendered)["input_ids"][0]

    assert prepare(path, "?", (WIDE, TALL)).payload.ids.tolist() == list(expected)


def test_prompts_of_paligemma_have_their_images_first_and_end_with_a_line(tmp_path):
    path = save(tmp_path, "paligemma")
    images = FAMILIES["paligemma"].images()
    images.image_seq_length = 16
    processor = PaliGemmaProcessor(images, transformers.AutoTokenizer.from_pretrained(path))
    expected = processor(images=[[WIDE, TALL]], text="<image><image>What?")["input_ids"][0]

    assert prepare(path, "What?", (WIDE, TALL)).payload.ids.tolist() == list(expected)


def test_pixtral_is_told_where_a_row_of_an_image_ends(tmp_path):
    path = save(tmp_path, "mistral3")
    named = {IDS[token]: token for token in ("[IMG]", "[IMG_BREAK]", "[IMG_END]")}

    ids = prepare(path, "?", (WIDE,)).payload.ids.tolist()

    shown = "".join(named[token] for token in ids if token in named)
    assert shown == "[IMG][IMG][IMG][IMG][IMG_BREAK]" * 2 + "[IMG][IMG][IMG][IMG][IMG_END]"


def test_what_sees_all_of_itself_is_read_at_once_even_where_a_step_reads_less(tmp_path):
    for name in ("gemma3", "paligemma"):
        path = save(tmp_path / name, name)
        model = FAMILY.load(spec(path, limits=Limits(max_batch_cost=8)), path, "cpu")
        text = {"text": prepare(path, "Once upon a time", max_new_tokens=12)}
        seen = {"seen": prepare(path, "Which?", (TALL, SMALL), max_new_tokens=8)}
        alone = Reference(path, name)

        said = run(model, text, {}, seen)

        for job, images in (("text", ()), ("seen", (TALL, SMALL))):
            prompt = {**text, **seen}[job].payload
            expected = alone.greedy(prompt.ids.tolist(), images, prompt.max_new_tokens)
            assert list(answer(said[job]).token_ids) == expected, (name, job)


def test_images_are_looked_at_one_at_a_time_while_others_answer(smolvlm, decoder):
    text = {"a": prepare(smolvlm, "Once upon a time", max_new_tokens=30)}
    seen = {"b": prepare(smolvlm, "What is this?", (WIDE,), max_new_tokens=3)}
    tiles = len(seen["b"].payload.glances)

    said = run(decoder, text, {}, {}, seen)

    assert tiles == 5  # two rows of two, and the whole image
    assert all(progressed.tokens == 1 for progressed in said["a"][2:])  # the first two read its prompt
    assert [progressed.tokens for progressed in said["b"]].index(1) >= tiles - 1


def test_what_a_sequence_holds_is_what_was_leased_for_it(smolvlm, decoder):
    per_token = FAMILY.footprint(spec(smolvlm), smolvlm).kv_bytes_per_token
    job = prepare(smolvlm, "What is this?", (WIDE, TALL), max_new_tokens=4)
    image_tokens = job.payload.ids.tolist().count(IDS["<image>"])

    decoder.advance({"a": job}, (), 0.0)
    reading = decoder.kv_bytes
    said = run(decoder, {}, {})

    words = len(job.payload.ids) + 4
    feature = 64 * 4  # hidden size in float32
    assert reading == words * per_token + image_tokens * feature
    assert reading <= job.kv_tokens * per_token < reading + per_token
    assert answer(said["a"]).finish_reason == "length"
    assert decoder.kv_bytes == 0


def test_a_sequence_that_leaves_before_it_has_seen_all_is_forgotten(smolvlm, decoder):
    job = prepare(smolvlm, "What is this?", (WIDE,))

    decoder.advance({"a": job}, (), 0.0)

    assert decoder.advance({}, ("a",), 0.0) == {}
    assert decoder.kv_bytes == 0


def test_an_image_without_room_fails_its_own_sequence_alone(smolvlm, monkeypatch):
    model = FAMILY.load(spec(smolvlm), smolvlm, "cpu")

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(type(model.network), "get_image_features", full)
    jobs = {"a": prepare(smolvlm, "Once", max_new_tokens=5), "b": prepare(smolvlm, "What?", (SMALL,))}
    said = run(model, jobs)

    assert isinstance(said["b"][-1].done, ResourceExhausted)
    assert len(answer(said["a"]).token_ids) == 5


def test_a_prompt_without_a_conversation_shows_its_images_first(smolvlm):
    asked = GenerateOptions()
    item = Item(text="What is this?", images=sent(WIDE))
    (prepared,) = preparer_of(smolvlm).prepare(Task.GENERATE, [item], asked)

    assert isinstance(prepared, Prepared)
    assert prepared.payload.ids.tolist() == prepare(smolvlm, "What is this?", (WIDE,)).payload.ids.tolist()
    assert (prepared.usage.images, prepared.usage.input_tokens) == (1, len(prepared.payload.ids))


def test_a_text_that_spells_an_image_token_shows_nothing(smolvlm):
    job = prepare(smolvlm, "Is <image> a word?")

    assert IDS["<image>"] not in job.payload.ids
    assert bytes(token for token in job.payload.ids.tolist() if token < 256).count(b"<image>") == 1


def test_what_is_wrong_with_the_images_of_a_prompt_is_told(smolvlm):
    small = FAMILY.preparer(spec(smolvlm, max_tokens=40, options={"max_images": 2}), smolvlm)

    def refused(preparer: Prompts, item: Item, **options: object) -> EngineError:
        (error,) = preparer.prepare(Task.GENERATE, [item], GenerateOptions(**options))
        assert isinstance(error, EngineError)
        return error

    three = refused(small, Item(text="?", images=sent(SMALL, SMALL, SMALL)))
    long = refused(small, Item(text="?", images=sent(WIDE, WIDE)))
    broken = refused(preparer_of(smolvlm), Item(text="?", images=(*sent(SMALL), Media(b"no image"))))
    nowhere = refused(preparer_of(smolvlm), Item(text="What?", images=sent(SMALL)), raw=True)
    missing = refused(preparer_of(smolvlm), Item(text="<image>"), raw=True)
    tokens = refused(preparer_of(smolvlm), Item(tokens=(IDS["<image>"], 65)))
    said = {"role": "user", "content": [{"type": "film"}]}
    film = refused(preparer_of(smolvlm), Item(), messages=(said,))

    assert isinstance(three, InvalidInput) and "at most 2" in three.message
    assert isinstance(long, InputTooLong) and long.details["max_length"] == 40
    assert isinstance(broken, InvalidInput) and "image 1" in broken.message
    assert isinstance(nowhere, InvalidInput) and "0 places for images and 1" in nowhere.message
    assert isinstance(missing, InvalidInput) and "1 places for images and 0" in missing.message
    assert isinstance(tokens, InvalidInput) and "places for 1" in tokens.message
    assert isinstance(film, InvalidInput) and "text and image only" in film.message


def test_llava_next_spells_images_of_any_shape_as_transformers_does(tmp_path):
    path = save(tmp_path, "llava_next")
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    tiny = FAMILIES["llava_next"].images()
    processor = LlavaNextProcessor(tiny, tokenizer, 8, "default", num_additional_image_tokens=1)
    for size in ((20, 20), (30, 64), (70, 40), (200, 33), (35, 35)):
        images = (noise(*size),)
        rendered = tokenizer.apply_chat_template([turn("?", 1)], tokenize=False, add_generation_prompt=True)
        expected = processor(images=list(images), text=rendered)["input_ids"][0]
        assert prepare(path, "?", images).payload.ids.tolist() == list(expected), size


def test_a_shape_that_no_model_looks_at_is_told_as_such(tmp_path):
    path = save(tmp_path, "qwen2_vl")
    error = tried(path, "?", (noise(3000, 10),))

    assert isinstance(error, InvalidInput)
    assert "3000 x 10" in error.message


@pytest.mark.parametrize(("name", "token"), [("qwen2_vl", "<|image_pad|>"), ("mistral3", "[IMG]")])
def test_larger_images_are_made_smaller_where_the_entry_says_so(name, token, tmp_path):
    path = save(tmp_path, name)
    less = FAMILY.preparer(spec(path, options={"max_pixels": 1024}), path)
    asked = GenerateOptions(messages=(turn("?", 1),))
    (few,) = less.prepare(Task.GENERATE, [Item(images=sent(WIDE))], asked)

    assert isinstance(few, Prepared)
    assert few.payload.ids.tolist().count(IDS[token]) * 16 * 16 <= 1024
    assert few.cost < prepare(path, "?", (WIDE,)).cost
    footprints = [
        FAMILY.footprint(spec(path, options=options), path) for options in ({"max_pixels": 1024}, {})
    ]
    assert footprints[0].workspace_base < footprints[1].workspace_base


def test_images_are_refused_by_a_model_that_reads_words(tmp_path):
    from engine.adapters import causal_lm

    path = save_words(tmp_path, CONFIGS["llama"])
    preparer = causal_lm.FAMILY.preparer(spec(path), path)
    for item, asked in (
        (Item(text="?", images=sent(SMALL)), GenerateOptions()),
        (Item(images=sent(SMALL)), GenerateOptions(messages=({"role": "user", "content": "?"},))),
    ):
        (error,) = preparer.prepare(Task.GENERATE, [item], asked)
        assert isinstance(error, InvalidInput)
        assert "takes text only" in error.message
    with pytest.raises(BadWeights, match="are not shown images"):
        FAMILY.preparer(spec(path), path)
