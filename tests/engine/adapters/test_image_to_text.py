from __future__ import annotations

import re

import pytest
import torch
from transformers import (
    AutoTokenizer,
    DonutSwinConfig,
    DonutSwinModel,
    MBartConfig,
    MBartForCausalLM,
    VisionEncoderDecoderModel,
)
from transformers.models.donut.image_processing_pil_donut import DonutImageProcessorPil
from transformers.models.donut.processing_donut import DonutProcessor

from engine.adapters.image_to_text import FAMILY, TextReading
from engine.errors import InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Item, Media, Task
from tests.engine.adapters.tiny_vision import entry, noise, save, shown, words

PROMPT = "<s_docvqa><s_question>{question}</s_question><s_answer>"
FIELDS = ["<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>", "<sep/>"]
SPEC = entry(
    "image_to_text", Task.EXTRACT, options={"task_prompt": PROMPT, "output": "json", "max_new_tokens": 16}
)
IMAGES = [noise(64, 96), noise(90, 40, seed=1), noise(64, 96, seed=2)]
QUESTIONS = ["what is the total ?", "what is this", "what is the invoice ?"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("donut")
    words(path, "<s>", "</s>", "<pad>", **{"<s>": 0, "<pad>": 1, "</s>": 2})
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.add_tokens(FIELDS)
    tokenizer.save_pretrained(path)
    encoder = DonutSwinModel(
        DonutSwinConfig(image_size=[64, 32], embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4)
    )
    decoder = MBartForCausalLM(
        MBartConfig(
            vocab_size=len(tokenizer),
            d_model=32,
            decoder_layers=2,
            decoder_attention_heads=2,
            is_decoder=True,
            decoder_ffn_dim=32,
            max_position_embeddings=40,
            add_cross_attention=True,
            is_encoder_decoder=False,
            tie_word_embeddings=False,
        )
    )
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    model.config.decoder_start_token_id, model.config.pad_token_id = 0, 1
    model.config.tie_word_embeddings = False
    save(path, model, DonutImageProcessorPil(size={"height": 64, "width": 32}), 0.3)
    return path


@pytest.fixture(scope="module")
def preparer(path):
    return FAMILY.preparer(SPEC, path)


@pytest.fixture(scope="module")
def model(path):
    model = FAMILY.load(SPEC, path, "cpu")
    yield model
    model.unload()


def test_answers_are_those_of_the_reference_in_any_company(path, preparer, model):
    reference = VisionEncoderDecoderModel.from_pretrained(path).eval()
    tokenizer = AutoTokenizer.from_pretrained(path)
    images = DonutImageProcessorPil.from_pretrained(path)
    jobs, expected = [], []
    for image, question in zip(IMAGES, QUESTIONS, strict=True):
        jobs += preparer.prepare(Task.EXTRACT, shown(image), ExtractOptions(instruction=question))
        prompt = tokenizer(
            PROMPT.replace("{question}", question), add_special_tokens=False, return_tensors="pt"
        ).input_ids
        with torch.inference_mode():
            ids = reference.generate(
                pixel_values=images(image, return_tensors="pt").pixel_values, decoder_input_ids=prompt,
                max_new_tokens=16, eos_token_id=2, pad_token_id=1, do_sample=False,
                bad_words_ids=[[tokenizer.unk_token_id]],
            )  # fmt: skip
        text = tokenizer.decode(ids[0]).replace("</s>", "").replace("<pad>", "")
        text = re.sub(r"<.*?>", "", text, count=1).strip()
        reader = DonutProcessor.__new__(DonutProcessor)
        reader.tokenizer = tokenizer
        expected.append(reader.token2json(text))

    together = [answer.data["fields"] for answer in model.run(jobs)]

    assert together == expected
    assert [model.run([job])[0].data["fields"] for job in jobs] == expected
    assert [field["question"] for field in together] == QUESTIONS


def test_marked_text_becomes_fields(path, model):
    ids = model._reading._tokenizer(
        "<s_docvqa><s_question>what is this</s_question><s_answer>total<sep/>cat</s_answer></s>",
        add_special_tokens=False,
    )["input_ids"]

    told = model._reading.answer(ids, None, None)
    plain = TextReading(model._reading._tokenizer, fields=False).answer(ids, None, None)

    assert told.data == {"fields": {"question": "what is this", "answer": ["total", "cat"]}}
    assert "cat" in plain.data["text"]


def test_cost_holds_the_longest_answer(preparer):
    def cost(**extra):
        options = ExtractOptions(instruction="what", extra=extra)
        return preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), options)[0].cost

    assert cost(max_new_tokens=20) - cost(max_new_tokens=10) == 2560
    assert cost(num_beams=2) > cost()


def test_a_damaged_image_fails_alone(preparer, model):
    good, bad = shown(IMAGES[0])[0], Item(images=(Media(shown(IMAGES[1])[0].images[0].data[:900]),))

    fine, damaged = model.run(preparer.prepare(Task.EXTRACT, [good, bad], ExtractOptions(instruction="what")))

    assert fine.data["fields"]
    assert (type(damaged), damaged.item) == (InvalidInput, 1)


def test_what_it_cannot_follow_is_refused(preparer):
    with pytest.raises(InvalidInput, match="answers a question"):
        preparer.prepare(Task.EXTRACT, [], ExtractOptions())
    with pytest.raises(InvalidInput, match="no labels"):
        preparer.prepare(Task.EXTRACT, [], ExtractOptions(labels=("cat",)))
    with pytest.raises(InvalidInput, match="no scores"):
        preparer.prepare(Task.EXTRACT, [], ExtractOptions(threshold=0.5))
    with pytest.raises(InvalidInput, match="num_beams is a whole number"):
        preparer.prepare(Task.EXTRACT, [], ExtractOptions(instruction="a", extra={"num_beams": 99}))
    with pytest.raises(InputTooLong, match="takes 40"):
        preparer.prepare(Task.EXTRACT, [], ExtractOptions(instruction="cat " * 50))
