"""A flood claim from scan to review: read, guard, extract, retrieve, rerank, look, write."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from web.demo import form, models, photos, reading
from web.demo.claims import Claim
from web.demo.client import Server
from web.demo.failing import DemoFailed
from web.demo.pipeline import Pipeline, Step, Watcher
from web.demo.policy import policy

NEAR = 5
"""Passages that retrieval hands to the reranker."""
BEST = 2
"""Passages that the writer gets."""
SUSPICIOUS = 0.5
"""A text that the guard finds likelier than this to be an injection is not read further."""
TOTAL = "Total"
LABELS = ("organization", "person", "date", "amount")
PERSONAL_LABELS = ("name", "address")
PROMPT = """\
Summarize this flood insurance claim and what the policy says about it.

{insured} claims {total} for a flood on {lost_on}. The losses are: {losses}. The photo shows {photo}. \
The policy {policy} says: "{rules}"
"""


@dataclass(frozen=True, slots=True)
class Review:
    """What came of one claim, all of it read from the server's answers."""

    markdown: str
    fields: Mapping[str, str]
    entities: Mapping[str, list[str]]
    passages: tuple[str, ...]
    """The best of the policy, best first."""
    photo: str
    prompt: str
    text: str
    steps: tuple[Step, ...]


async def review(server: Server, claim: Claim, name: str, watcher: Watcher, *, detect: bool) -> Review:
    """One claim. Raises DemoFailed when a model cannot be asked, or the guard raises its alarm."""
    run = Pipeline(name, server, watcher)
    markdown = await _read_form(run, claim)
    passages = await _read_policy(run, claim)
    text = reading.plain(markdown)
    await guard(run, text)
    entities = await _entities(run, text)
    fields, losses = _fields(markdown), _losses(markdown)
    question = f"Are these losses covered: {', '.join(losses)}?"
    rules = await _rerank(run, question, await _retrieve(run, question, passages))
    photo = await _look(run, claim)
    if detect:
        await _detect(run, claim)
    prompt = _prompt(fields, losses, photo, rules)
    written = await run.write("write", models.WRITE, _writing(prompt))
    run.found("")
    return Review(markdown, fields, entities, rules, photo, prompt, written, tuple(run.steps))


async def _read_form(run: Pipeline, claim: Claim) -> str:
    body = {"items": [{"images": [_media(form.scan(claim), "jpeg")]}]}
    markdown = _markdown(await run.ask("read", "extract", models.PAGE, body))
    fields, losses = _fields(markdown), _losses(markdown)
    run.found(f"the scanned form: {len(fields)} fields, {len(losses)} losses, {fields[TOTAL]}")
    return markdown


async def _read_policy(run: Pipeline, claim: Claim) -> list[str]:
    body = {"items": [{"document": _media(policy(claim), "docx")}]}
    passages = reading.sections(_markdown(await run.ask("read", "extract", models.DOCUMENT, body)))
    run.found(f"the policy, a Word document: {len(passages)} sections")
    return passages


async def guard(run: Pipeline, text: str) -> None:
    """Raises DemoFailed for a text that gives orders to the models that would read it."""
    body = {"items": [{"text": text}], "params": {"labels": ["prompt injection"]}}
    answer = await run.ask("guard", "extract", models.GUARD, body)
    chance = answer["items"][0]["classifications"][0]["score"]
    if chance > SUSPICIOUS:
        run.found(f"[red]prompt injection, {chance:.2f}[/]")
        raise DemoFailed(f"The guard takes this claim for a prompt injection ({chance:.2f}): it stops here.")
    run.found(f"no prompt injection ({chance:.4f})")


async def _entities(run: Pipeline, text: str) -> dict[str, list[str]]:
    """What spaCy finds in prose, and what is personal in it."""
    body = {"items": [{"text": text}], "params": {"labels": LABELS}}
    found = reading.entities(await run.ask("extract", "extract", models.ENTITIES, body))
    run.found("; ".join(f"{label} {_few(found[label])}" for label in LABELS if label in found))
    body = {"items": [{"text": text}], "params": {"labels": PERSONAL_LABELS}}
    personal = reading.entities(await run.ask("extract", "extract", models.PERSONAL, body))
    run.found("; ".join(f"{label} {' '.join(texts)}" for label, texts in personal.items()))
    return found | personal


async def _retrieve(run: Pipeline, question: str, passages: list[str]) -> list[str]:
    """The nearest passages to the question, nearest first."""
    body = {"items": [{"text": text} for text in (question, *passages)]}
    asked, *kept = reading.vectors(await run.ask("retrieve", "encode", models.EMBED, body))
    like = {passage: reading.likeness(asked, vector) for passage, vector in zip(passages, kept, strict=True)}
    near = sorted(passages, key=lambda passage: -like[passage])[:NEAR]
    run.found(f"{len(near)} of {len(passages)} sections, {like[near[0]]:.2f} to {like[near[-1]]:.2f} alike")
    return near


async def _rerank(run: Pipeline, question: str, passages: list[str]) -> tuple[str, ...]:
    body = {"query": {"text": question}, "items": [{"id": str(i), "text": p} for i, p in enumerate(passages)]}
    ranked = (await run.ask("rerank", "score", models.RERANK, body))["scores"][:BEST]
    best = [(passages[int(each["item_id"])], each["score"]) for each in ranked]
    run.found("; ".join(f"{passage.splitlines()[0]} ({score:.1f})" for passage, score in best))
    return tuple(passage for passage, _ in best)


async def _look(run: Pipeline, claim: Claim) -> str:
    """What the photograph on file shows that is most like the one that was sent."""
    filed = photos.filed()
    pictures = [photos.claimed(claim.photo), *filed.values()]
    body = {"items": [{"images": [_media(picture, "png")]} for picture in pictures]}
    sent, *kept = reading.vectors(await run.ask("look", "encode", models.LOOK, body))
    like = {shows: reading.likeness(sent, vector) for shows, vector in zip(filed, kept, strict=True)}
    best = max(like, key=lambda shows: like[shows])
    run.found(f"the photo is most like one on file of {best} ({like[best]:.2f})")
    return best


async def _detect(run: Pipeline, claim: Claim) -> None:
    body = {"items": [{"images": [_media(photos.claimed(claim.photo), "png")]}]}
    answer = await run.ask("look", "extract", models.DETECT, body)
    seen = [f"{thing['label']} ({thing['score']:.2f})" for thing in answer["items"][0]["objects"]]
    run.found(f"in the photo: {', '.join(seen) or 'nothing it knows'}")


def _fields(markdown: str) -> dict[str, str]:
    """What the form says by label, and the sum of the table of losses."""
    return {**reading.pairs(markdown), TOTAL: _table(markdown)[-1][-1]}


def _losses(markdown: str) -> dict[str, str]:
    """Item -> amount."""
    return {row[0]: row[-1] for row in _table(markdown)[1:-1]}


def _table(markdown: str) -> reading.Rows:
    """The losses: a header, the items, and the total."""
    for rows in reading.tables(markdown):
        if rows[-1][0] == TOTAL:
            return rows
    raise DemoFailed("The scanned form came back without its table of losses.")


def _prompt(fields: Mapping[str, str], losses: Mapping[str, str], photo: str, rules: tuple[str, ...]) -> str:
    try:
        return PROMPT.format(
            insured=fields["Name of insured"],
            total=fields[TOTAL],
            lost_on=fields["Date of loss"],
            losses=", ".join(f"{item} ({amount})" for item, amount in losses.items()),
            photo=photo,
            policy=fields["Policy number"],
            rules=" ".join(rule.partition("\n")[2].strip() for rule in rules),
        )
    except KeyError as missing:
        raise DemoFailed(f"The scanned form came back without its field {missing}.") from None


def _writing(prompt: str) -> dict[str, Any]:
    """Greedy; the penalty keeps a very small model from saying everything twice."""
    return {"prompt": prompt, "max_new_tokens": 160, "frequency_penalty": 0.4, "stop": ["\n\n"]}


def _markdown(answer: Mapping[str, Any]) -> str:
    item = answer["items"][0]
    if "error" in item:
        raise DemoFailed(f"{answer['model']} could not read its document: {item['error']['message']}")
    return str(item["data"]["markdown"])


def _media(data: bytes, kind: str) -> dict[str, str]:
    return {"data": base64.b64encode(data).decode(), "format": kind}


def _few(texts: list[str], most: int = 2) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
