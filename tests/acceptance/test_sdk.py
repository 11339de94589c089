"""The published client, unchanged, drives the real server on real weights."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sie_sdk import SIEAsyncClient, SIEClient

from tests.acceptance.asking import MINILM, NER, RERANKER, WRITER
from tests.acceptance.serving import Server

QUESTION = "Who issued the invoice and what is the amount due?"
INVOICE = "Invoice INV-4471 was issued by Northwind Logistics on 14 March 2026."
PASSAGES = {
    "cafeteria": "The cafeteria opens at eight and closes at three.",
    "invoice": INVOICE,
    "amount": "The total amount due is 1,250 euros.",
}
ASKED = ["organization", "date"]

COMPANIES = ("Northwind Logistics", "Microsoft Corporation", "Deutsche Bank", "Siemens", "Goldman Sachs")
DATES = ("14 March 2026", "July 4, 1999", "21 August 2024", "December 31, 2030")
DECORATION = ("🎉", "🐫🐫", "👩‍👩‍👧", "🇩🇪", "e\u0301 ✅\ufe0f")
SHAPES = (
    "{deco} The contract was signed by {company} on {date}. {deco}",
    "On {date}, {deco} a letter from {company} arrived.",
    "{deco} Invoice INV-{number} was issued by {company} on {date} {deco}.",
)


def sentences(count: int) -> list[tuple[str, str, str]]:
    """Text, the company in it, the date in it; no two alike."""
    chance = random.Random(4471)
    made = []
    for number in range(count):
        company, date, deco = chance.choice(COMPANIES), chance.choice(DATES), chance.choice(DECORATION)
        shape = chance.choice(SHAPES)
        made.append(
            (shape.format(deco=deco, company=company, date=date, number=4000 + number), company, date)
        )
    return made


def labels(number: int) -> list[str]:
    """What is asked for: in any order, more than once, in any case."""
    asked = [*ASKED, *ASKED, "Organization", "DATE"]
    random.Random(number).shuffle(asked)
    return asked


def places(entities: list[dict]) -> set[tuple[str, str, int, int]]:
    return {(e["text"], e["label"].lower(), e["start"], e["end"]) for e in entities}


@pytest.fixture
def client(server: Server):
    with SIEClient(server.url, timeout_s=90) as client:
        yield client


def test_encode_gives_float32_vectors_of_384(client: SIEClient):
    alone = client.encode(MINILM, {"text": "hello"})
    several = client.encode(MINILM, [{"text": "hello", "id": "a"}, {"text": "goodbye"}])

    assert (alone["dense"].shape, alone["dense"].dtype) == ((384,), np.float32)
    assert several[0]["id"] == "a"
    np.testing.assert_allclose(several[0]["dense"], alone["dense"], atol=1e-5)
    assert np.dot(several[1]["dense"], alone["dense"]) < 0.9


def test_score_ranks_invoice_over_amount_over_cafeteria(client: SIEClient):
    items = [{"text": text, "id": name} for name, text in PASSAGES.items()]

    scored = client.score(RERANKER, {"text": QUESTION}, items)

    assert [s["item_id"] for s in scored["scores"]] == ["invoice", "amount", "cafeteria"]
    assert [s["rank"] for s in scored["scores"]] == [0, 1, 2]


def test_extract_finds_the_company_and_the_date_where_they_are(client: SIEClient):
    found = places(client.extract(NER, {"text": INVOICE}, labels=ASKED)["entities"])

    assert ("Northwind Logistics", "organization", 31, 50) in found
    assert ("14 March 2026", "date", 54, 67) in found


def test_offsets_are_right_beside_emoji_whatever_the_order_of_the_labels(client: SIEClient):
    for number, (text, company, date) in enumerate(sentences(20)):
        entities = client.extract(NER, {"text": text}, labels=labels(number))["entities"]

        found = places(entities)
        assert all(text[start:end] == said for said, _, start, end in found)
        assert len(found) == len(entities), f"an entity is told twice: {entities}"
        for said, label in ((company, "organization"), (date, "date")):
            start = text.index(said)
            assert (said, label, start, start + len(said)) in found, text


def test_many_items_of_one_request_have_their_own_offsets(client: SIEClient):
    made = sentences(20)

    answers = client.extract(NER, [{"text": text} for text, _, _ in made], labels=labels(0))

    for (text, company, _), answer in zip(made, answers, strict=True):
        start = text.index(company)
        assert (company, "organization", start, start + len(company)) in places(answer["entities"])


def test_generate_gives_text_and_usage(client: SIEClient):
    made = client.generate(WRITER, "What is the capital of France?", max_new_tokens=8)
    streamed = list(client.stream_generate(WRITER, "What is the capital of France?", max_new_tokens=8))

    assert "Paris" in made["text"]
    usage = made["usage"]
    assert 0 < usage["completion_tokens"] <= 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert "".join(chunk["text_delta"] for chunk in streamed) == made["text"]
    assert streamed[-1]["usage"] == usage


@pytest.mark.anyio
async def test_the_async_client_does_the_same(server: Server):
    items = [{"text": text, "id": name} for name, text in PASSAGES.items()]

    async with SIEAsyncClient(server.url, timeout_s=90) as client:
        encoded = await client.encode(MINILM, {"text": "hello"})
        scored = await client.score(RERANKER, {"text": QUESTION}, items)
        extracted = await client.extract(NER, {"text": INVOICE}, labels=ASKED)
        generated = await client.generate(WRITER, "What is the capital of France?", max_new_tokens=8)

    assert (encoded["dense"].shape, encoded["dense"].dtype) == ((384,), np.float32)
    assert [s["item_id"] for s in scored["scores"]] == ["invoice", "amount", "cafeteria"]
    assert ("Northwind Logistics", "organization", 31, 50) in places(extracted["entities"])
    assert "Paris" in generated["text"]
    assert generated["usage"]["completion_tokens"] > 0
