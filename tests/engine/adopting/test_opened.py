"""A catalogue that is open: who names a repository is served, and who names nothing is told so."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from engine import catalog as catalogues
from engine.errors import EngineError, InvalidInput, UnknownModel
from tests.engine.adopting.repositories import EMBEDDER, cached
from tests.engine.test_changeover import entry, write
from tests.simulation import engine, request

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served(tmp_path, **settings):
    files = tmp_path / "files"
    files.mkdir(exist_ok=True)
    write(files, entry("a"))
    known = catalogues.load([files], {"simulated", "text_encoder"})
    settings = {"catalog_watch": False, "state_dir": tmp_path / "state"} | settings
    async with engine(known, **settings) as opened:
        yield opened


async def refusal(opened, model: str) -> EngineError:
    with pytest.raises(EngineError) as refused:
        await opened.submit(request(model, "x"))
    return refused.value


async def test_a_repository_that_a_request_names_gets_an_entry_that_is_kept(cache, tmp_path):
    cached(cache, "org/it", EMBEDDER)
    async with served(tmp_path, open_catalog=True) as opened:
        assert type(await refusal(opened, "org__it:default")) is not UnknownModel
        assert opened.catalog.models["org/it"].dims == {"dense": 32}
        assert await opened.operators.added_entries() == {"org/it"}
        (last, *_) = opened.view().catalog.directories[::-1]
        assert last == str(tmp_path / "state" / "catalog")


async def test_a_closed_catalogue_asks_nobody(cache, tmp_path):
    cached(cache, "org/it", EMBEDDER)
    async with served(tmp_path) as opened:
        assert type(await refusal(opened, "org/it")) is UnknownModel
        assert "org/it" not in opened.catalog.models


async def test_what_is_nowhere_is_unknown_and_is_not_asked_for_again_at_once(cache, tmp_path):
    cache.mkdir()
    async with served(tmp_path, open_catalog=True) as opened:
        first = await refusal(opened, "org/it")
        assert type(first) is UnknownModel and "Nothing is known of org/it" in first.message
        cached(cache, "org/it", EMBEDDER)
        assert await refusal(opened, "org/it") is first
        assert type(await refusal(opened, "b")) is UnknownModel
        assert type(await refusal(opened, "a:b")) is InvalidInput
        assert (await opened.submit(request("a", "x"))).outputs


async def test_what_no_family_serves_is_refused_with_its_architecture(cache, tmp_path):
    cached(cache, "org/it", {"config.json": {"architectures": ["T5Model"], "model_type": "t5"}})
    async with served(tmp_path, open_catalog=True) as opened:
        assert "org/it is a T5Model" in (await refusal(opened, "org/it")).message
