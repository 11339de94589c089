"""Many requests at once, each on a connection of its own, as many clients would send them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import numpy as np
import orjson
from aiohttp import ClientSession, ClientTimeout, TCPConnector
from numpy.typing import NDArray

from tests.acceptance.serving import PATIENCE

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
RERANKER = "cross-encoder/ms-marco-MiniLM-L-12-v2"
NER = "spacy/en_core_web_sm"
PII = "nationaldesignstudio/rampart"
WRITER = "HuggingFaceTB/SmolLM2-135M-Instruct"
PHOTOS = "google/mobilenet_v2_1.0_224"
DOCUMENTS = "docling-project/docling"
PAGES = "serai/page-markdown"

JSON = {"Accept": "application/json"}

Call = tuple[str, dict[str, Any]]
"""A path and a body."""


def encode(*texts: str, model: str = MINILM, **params: object) -> Call:
    return f"/v1/encode/{model}", {"items": [{"text": text} for text in texts], "params": params}


def score(query: str, *passages: str) -> Call:
    items = [{"text": passage} for passage in passages]
    return f"/v1/score/{RERANKER}", {"query": {"text": query}, "items": items}


def extract(*texts: str, model: str = NER, **params: object) -> Call:
    return f"/v1/extract/{model}", {"items": [{"text": text} for text in texts], "params": params}


@asynccontextmanager
async def clients(url: str) -> AsyncIterator[ClientSession]:
    """As many connections as there are requests."""
    connector = TCPConnector(limit=0)
    async with ClientSession(
        url, connector=connector, timeout=ClientTimeout(PATIENCE), headers=JSON
    ) as session:
        yield session


async def ask(session: ClientSession, call: Call) -> tuple[int, dict[str, Any]]:
    """Status and body."""
    path, body = call
    data = BytesIO(orjson.dumps(body))
    async with session.post(path, data=data, headers={"Content-Type": "application/json"}) as answer:
        return answer.status, await answer.json()


async def together(session: ClientSession, calls: Sequence[Call]) -> list[tuple[int, dict[str, Any]]]:
    """All of them at once, answers in their order."""
    return await asyncio.gather(*[ask(session, call) for call in calls])


def vectors(answer: dict[str, Any]) -> NDArray[np.float32]:
    """(items, dims) of an encode answer."""
    return np.array([item["dense"]["values"] for item in answer["items"]], np.float32)
