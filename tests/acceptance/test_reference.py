"""What the server gives is what the models' own libraries give."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from sentence_transformers import CrossEncoder, SentenceTransformer

from tests.acceptance.asking import JSON, MINILM, NER, PII, RERANKER, Call, encode, extract, score, vectors
from tests.acceptance.serving import Server
from tests.weights import weights

TEXTS = (
    "a",
    "A parcel for the harbour.",
    "Where is the invoice, and what is the amount due?",
    "naïve café — 東京 🐫",
    "first line\r\nsecond line\r\n",
    "The contract was signed in March. " * 60,
)
QUERY = "Who issued the invoice and what is the amount due?"

NAMED = (
    "Northwind Logistics was founded in Chicago on 14 March 2026.",
    "🐫🐫 Northwind Logistics was founded in Chicago on 14 March 2026.",
    "First line 👩‍👩‍👧.\r\nNorthwind Logistics was founded in Chicago on 14 March 2026.\r\n",
    "\r\n\r\n🇩🇪 e\u0301\r\nMicrosoft Corporation sued Deutsche Bank 🎉 on July 4, 1999 in New York.",
)
PRIVATE = (
    "Please call Jane Miller or write to jane@example.com.",
    "🐫 e\u0301 Please call\r\nJane Miller 👩‍👩‍👧\r\nor write to jane@example.com.",
)


def asked(server: Server, call: Call) -> dict:
    path, body = call
    answer = server.http.post(path, json=body, headers=JSON)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_minilm_is_what_sentence_transformers_gives(server: Server):
    reference = SentenceTransformer(str(weights(MINILM)), device="cpu").encode(list(TEXTS))

    together = vectors(asked(server, encode(*TEXTS)))

    cosines = (
        (reference * together).sum(1) / np.linalg.norm(reference, axis=1) / np.linalg.norm(together, axis=1)
    )
    assert cosines.min() >= 0.9999
    assert abs(reference - together).max() < 1e-4


def test_the_reranker_is_what_cross_encoder_gives(server: Server):
    model = CrossEncoder(str(weights(RERANKER)), device="cpu", max_length=512)
    reference = model.predict([(QUERY, text) for text in TEXTS], activation_fn=_same)

    ranked = asked(server, score(QUERY, *TEXTS))["scores"]

    scores = [0.0] * len(TEXTS)
    for one in ranked:
        scores[int(one["item_id"].removeprefix("item-"))] = one["score"]
    np.testing.assert_allclose(scores, reference, atol=1e-3)
    assert [one["score"] for one in ranked] == sorted(scores, reverse=True)


def _same(scores):
    return scores


def test_entities_are_what_spacy_gives_and_index_the_text_in_code_points(server: Server):
    nlp = spacy.load(weights(NER))

    answers = asked(server, extract(*NAMED, labels=["ORG", "DATE", "GPE"]))["items"]

    for text, answer in zip(NAMED, answers, strict=True):
        found = [(e["text"], e["label"], e["start"], e["end"]) for e in answer["entities"]]
        expected = [(e.text, e.label_, e.start_char, e.end_char) for e in nlp(text).ents]
        assert found == [e for e in expected if e[1] in ("ORG", "DATE", "GPE")]
        assert all(text[start:end] == said for said, _, start, end in found)
        assert {label for _, label, _, _ in found} == {"ORG", "DATE", "GPE"}


@pytest.mark.parametrize("text", PRIVATE, ids=["plain", "emoji and CRLF"])
def test_personal_data_is_where_the_answer_says(server: Server, text: str):
    found = asked(server, extract(text, model=PII))["items"][0]["entities"]

    assert all(text[e["start"] : e["end"]] == e["text"] for e in found)
    told = {(e["text"], e["start"]) for e in found}
    assert ("jane@example.com", text.index("jane@")) in told
    assert any(said.startswith("Jane") and start == text.index("Jane") for said, start in told)
