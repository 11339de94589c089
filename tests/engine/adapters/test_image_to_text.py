from __future__ import annotations

import re
import threading
from collections import defaultdict

import pytest
import torch
from transformers import (
    AutoTokenizer,
    VisionEncoderDecoderModel,
)
from transformers.models.donut.image_processing_pil_donut import DonutImageProcessorPil
from transformers.models.donut.processing_donut import DonutProcessor

from engine import units
from engine.adapters.image_to_text import FAMILY, TextReading
from engine.errors import InferenceFailed, InputTooLong, InvalidInput, NotFinite
from engine.requests import ExtractOptions, Item, Media, Task
from tests.engine.adapters import tiny_donut
from tests.engine.adapters.tiny_donut import PROMPT
from tests.engine.adapters.tiny_vision import entry, noise, shown

SPEC = entry(
    "image_to_text", Task.EXTRACT, options={"task_prompt": PROMPT, "output": "json", "max_new_tokens": 16}
)
IMAGES = [noise(64, 96), noise(90, 40, seed=1), noise(64, 96, seed=2)]
QUESTIONS = ["what is the total ?", "what is this", "what is the invoice ?"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny_donut.save(tmp_path_factory.mktemp("donut"))


@pytest.fixture(scope="module")
def preparer(path):
    return FAMILY.preparer(SPEC, path)


@pytest.fixture(scope="module")
def model(path):
    model = FAMILY.load(SPEC, path, "cpu")
    yield model
    model.unload()


def test_answers_are_those_of_the_reference_in_any_company(path, preparer, model, compared):
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

    alone = [model.run([job])[0].data["fields"] for job in jobs]
    compared("image_to_text", "tiny Donut", "transformers", together, expected, alone)
    assert together == expected
    assert alone == expected
    assert [field["question"] for field in together] == QUESTIONS


@pytest.mark.parametrize("beams", [1, 2])
def test_an_answer_of_scores_that_are_no_numbers_is_none(path, preparer, beams):
    model = FAMILY.load(SPEC, path, "cpu")
    next(iter(model._model.encoder.parameters())).fill_(float("nan"))
    options = ExtractOptions(instruction=QUESTIONS[0], extra={"num_beams": beams})

    told = model.run(preparer.prepare(Task.EXTRACT, shown(*IMAGES[:2]), options))
    model.unload()

    assert [type(answer) for answer in told] == [NotFinite] * 2


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


def quanta(model, *joining, leaving=(), seconds=0.0):
    """One quantum for each of `joining`, then more until nothing runs: what each said of every job."""
    said = defaultdict(list)
    waiting, gone = list(joining), list(leaving)
    while waiting or any(rest[-1].done is None for rest in said.values()):
        for job, told in model.advance(waiting.pop(0) if waiting else {}, (), seconds).items():
            said[job].append(told)
    assert model.advance({}, gone, seconds) == {}
    return said


def jobs_of(preparer):
    made = [
        preparer.prepare(Task.EXTRACT, shown(image), ExtractOptions(instruction=question))[0]
        for image, question in zip(IMAGES, QUESTIONS, strict=True)
    ]
    return {str(at): job for at, job in enumerate(made)}


def test_an_answer_is_written_a_token_a_quantum_and_is_the_same(preparer, model):
    jobs = jobs_of(preparer)
    at_one_go = dict(zip(jobs, model.run(list(jobs.values())), strict=True))

    said = quanta(model, {"0": jobs["0"]}, {}, {"1": jobs["1"], "2": jobs["2"]})
    in_long_quanta = quanta(model, jobs, seconds=5.0)

    assert {job: told[-1].done for job, told in said.items()} == at_one_go
    assert {job: told[-1].done for job, told in in_long_quanta.items()} == at_one_go
    assert all(told.tokens <= 1 for rest in said.values() for told in rest)
    assert all(sum(told.tokens for told in rest) >= 1 for rest in said.values())
    assert len(said["0"]) > 2
    assert [len(told) for told in in_long_quanta.values()] == [1] * 3


def test_what_nobody_waits_for_is_not_written_on(preparer, model):
    jobs = jobs_of(preparer)
    threads = threading.active_count()

    model.advance(jobs, (), 0.0)
    model.advance({"3": jobs["0"]}, ("0", "1"), 0.0)
    assert threading.active_count() > threads
    told = model.advance({}, ("2", "3"), 0.0)

    assert told == {}
    assert threading.active_count() == threads


def test_a_job_that_fails_in_the_model_fails_alone(preparer, model, monkeypatch):
    jobs = jobs_of(preparer)
    expected = dict(zip(jobs, model.run(list(jobs.values())), strict=True))
    answer = type(model._reading).answer

    def breaks(reading, ids, job, look):
        if job is jobs["1"].payload:
            raise KeyError("no such thing")
        return answer(reading, ids, job, look)

    monkeypatch.setattr(type(model._reading), "answer", breaks)
    said = quanta(model, jobs, seconds=5.0)

    assert isinstance(said["1"][-1].done, InferenceFailed)
    assert [said[job][-1].done for job in "02"] == [expected[job] for job in "02"]


def test_what_it_holds_between_quanta_is_counted(path, preparer):
    per_unit = FAMILY.footprint(SPEC, path).kv_bytes_per_token
    (job,) = preparer.prepare(Task.EXTRACT, shown(IMAGES[0]), ExtractOptions(instruction="what"))
    decoder, image = 2 * 2 * 32 * 4, (64 // 32) * (32 // 32)  # bytes a token; tokens that it looks at

    assert job.kv_tokens >= job.cost + 16
    assert job.kv_tokens * per_unit >= decoder * (16 + len(job.payload.prompt) + image)


def test_its_unit_goes_by_quanta():
    assert units.facts(SPEC, None, None).generative
