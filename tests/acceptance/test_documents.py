"""Documents that nobody waits for any more, and what a long text or document does to everybody else."""

from __future__ import annotations

import asyncio
import base64
import time

import pytest

from tests.acceptance.asking import DOCUMENTS, MINILM, Call, ask, clients
from tests.acceptance.serving import Server, serving
from tests.weights import weights

pytestmark = pytest.mark.anyio

ENDLESS = b"".join(b"> " * 15 + b"*a* [b](c) **d**\n" for _ in range(3000))
"""Markdown that takes half a minute on an idle machine, and would be given up after one and a half."""


def document(data: bytes, named: str) -> Call:
    sent = {"data": base64.b64encode(data).decode(), "format": named}
    return f"/v1/extract/{DOCUMENTS}", {"items": [{"document": sent}]}


@pytest.fixture(scope="module")
def one_slot(tmp_path_factory: pytest.TempPathFactory):
    weights(MINILM)
    with serving(tmp_path_factory.mktemp("documents"), memory="1GiB", slots=1) as server:
        yield server


async def test_a_document_whose_client_left_frees_its_slot_and_its_model_at_once(one_slot: Server):
    async with clients(one_slot.url) as session:
        await ask(session, document(b"# warm", "md"))
        path, body = document(ENDLESS, "md")
        leaving = asyncio.create_task(session.post(path, json=body))
        await asyncio.to_thread(one_slot.until, lambda: one_slot.total("serai_device_busy_slots") == 1)

        leaving.cancel()
        left = time.monotonic()
        status, _ = await ask(session, document(b"# next", "md"))
        drained = await asyncio.to_thread(one_slot.http.post, f"/v1/admin/models/{DOCUMENTS}/unload")

    assert status == 200
    assert drained.status_code == 200
    assert time.monotonic() - left < 15.0, "it waited for a conversion that takes half a minute"


async def test_a_document_is_given_up_at_its_callers_deadline(one_slot: Server):
    path, body = document(ENDLESS, "md")
    async with clients(one_slot.url) as session:
        await ask(session, document(b"# warm", "md"))
        headers = {"X-Serai-Deadline-Ms": "600"}
        async with session.post(path, json=body, headers=headers) as answer:
            said = await answer.json()
        began = time.monotonic()
        status, _ = await ask(session, document(b"# next", "md"))

    assert (answer.status, said["detail"]["code"]) == (408, "DEADLINE_EXCEEDED")
    assert status == 200
    assert time.monotonic() - began < 15.0
