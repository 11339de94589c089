"""A thousand requests at once over three models: each answer is the one of its own text."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.acceptance.asking import clients, encode, extract, score, together, vectors
from tests.acceptance.serving import Server

pytestmark = pytest.mark.anyio

CITIES = ("Oslo", "Lisbon", "Prague", "Chicago", "Nairobi", "Osaka", "Lima")


def texts(count: int) -> list[str]:
    return [f"Parcel {n} left {CITIES[n % 7]} at {n % 24}:{n % 60:02d} for 1{n} euros." for n in range(count)]


async def test_a_thousand_requests_at_once_get_the_answer_of_their_own_text(server: Server):
    encoding = [encode(text) for text in texts(400)]
    scoring = [score("When did parcel 17 leave Prague?", text) for text in texts(200)]
    extracting = [extract(text) for text in texts(400)]
    calls = [*encoding, *scoring, *extracting]
    order = random.Random(1000).sample(range(1000), 1000)

    async with clients(server.url) as session:
        alone = [(await together(session, [call]))[0] for call in calls]
        batches = server.total("serai_batches_total")
        mixed = await together(session, [calls[place] for place in order])
    at_once = [answer for _, answer in sorted(zip(order, mixed, strict=True), key=lambda pair: pair[0])]

    assert {status for status, _ in alone + at_once} == {200}
    assert server.total("serai_batches_total") - batches < len(calls) / 2, "they were not batched"
    expected, actual = (np.concatenate([vectors(b) for _, b in a[:400]]) for a in (alone, at_once))
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert (np.argmax(expected @ expected.T, 1) == np.arange(400)).all(), "two texts cannot be told apart"
    np.testing.assert_allclose(scores(at_once[400:600]), scores(alone[400:600]), atol=1e-4)
    assert entities(at_once[600:]) == entities(alone[600:])
    assert len({tuple(found) for found in entities(alone[600:])}) > 380


def scores(answers: list) -> list[float]:
    return [body["scores"][0]["score"] for _, body in answers]


def entities(answers: list) -> list[list[tuple]]:
    found = [body["items"][0]["entities"] for _, body in answers]
    return [[(e["text"], e["label"], e["start"], e["end"]) for e in each] for each in found]
