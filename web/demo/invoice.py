"""Four stages over an invoice: encode passages, rank them for a question, extract from the best, answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from web.demo import models, reading
from web.demo.client import Server
from web.demo.pipeline import Pipeline, Step, Watcher

QUESTION = "Who issued the invoice and what is the amount due?"
PASSAGES: Mapping[str, str] = {
    "cafeteria": "The cafeteria on the second floor opens at nine and serves soup until three.",
    "amount": "The amount due is $8,214.60, payable within thirty days of receipt.",
    "invoice": "Invoice INV-4471 was issued by Northwind Logistics on 14 March 2026. "
    "The amount due is $8,214.60.",
}
LABELS = ("organization", "date", "amount")
PROMPT = "{text}\n\nQuestion: {question} Answer in one sentence."


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it; `ranked` holds the passages' names, best first."""

    ranked: tuple[str, ...]
    entities: Mapping[str, list[str]]
    text: str
    steps: tuple[Step, ...]


async def answer(server: Server, name: str, watcher: Watcher) -> Answer:
    """Raises DemoFailed when a model cannot be asked."""
    run = Pipeline(name, server, watcher)
    texts = [QUESTION, *PASSAGES.values()]
    encoded = await run.ask("encode", "encode", models.EMBED, {"items": [{"text": text} for text in texts]})
    asked, *kept = reading.vectors(encoded)
    likes = [f"{name} {reading.likeness(asked, v):.2f}" for name, v in zip(PASSAGES, kept, strict=True)]
    run.found(f"likeness to the question: {', '.join(likes)}")

    items = [{"id": name, "text": text} for name, text in PASSAGES.items()]
    scored = await run.ask("score", "score", models.RERANK, {"query": {"text": QUESTION}, "items": items})
    ranked = tuple(each["item_id"] for each in scored["scores"])
    run.found(" > ".join(f"{each['item_id']} ({each['score']:.1f})" for each in scored["scores"]))

    best = PASSAGES[ranked[0]]
    body = {"items": [{"text": best}], "params": {"labels": LABELS}}
    entities = reading.entities(await run.ask("extract", "extract", models.ENTITIES, body))
    run.found("; ".join(f"{label} {', '.join(found)}" for label, found in entities.items()))

    prompt = PROMPT.format(text=best, question=QUESTION)
    asked_for = {"prompt": prompt, "max_new_tokens": 60, "stop": ["\n\n"]}
    text = await run.write("generate", models.WRITE, asked_for)
    run.found("")
    return Answer(ranked, entities, text, tuple(run.steps))
