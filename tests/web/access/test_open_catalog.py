"""An open catalogue makes nothing of a model that the caller's key is not for."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from engine.requests import Task
from tests.web.access.conftest import bearer
from tests.web.conftest import serving
from tests.web.fakes import spec

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("models", "status"), [(("fake/*",), 403), (("org/*",), 200), ((), 200)])
async def test_a_key_opens_the_catalogue_for_its_own_models_only(guarding, models, status):
    guarded = guarding(open_catalog=True)
    guarded.engine.adoptable = {"org/encoder": spec("org/encoder", Task.ENCODE, outputs=["dense"])}
    headers = bearer(guarded.key("bot", models=models))

    async with serving(guarded.engine) as url, ClientSession(url, headers=headers) as http:
        for path, body in (
            ("/v1/encode/org__encoder", {"items": [{"text": "a"}]}),
            ("/v1/embeddings", {"model": "org/encoder", "input": "a"}),
        ):
            async with http.post(path, json=body) as answer:
                assert answer.status == status, await answer.text()
    assert ("org/encoder" in guarded.engine.catalog.models) == (status == 200)
