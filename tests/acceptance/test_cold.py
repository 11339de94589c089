"""A cold model is loaded once however many ask; a load that fails is told to all, and tried again."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.acceptance.asking import (
    MINILM,
    NER,
    PII,
    RERANKER,
    ask,
    clients,
    encode,
    extract,
    score,
    together,
    vectors,
)
from tests.acceptance.serving import Server, serving
from tests.weights import weights

pytestmark = pytest.mark.anyio

CALLERS = 100
COOLDOWN = 1.0
COLD, BROKEN, EMPTY = "test/cold", "test/broken", "test/empty"


def entry(name: str, directory: Path) -> dict:
    return {
        "id": name,
        "family": "text_encoder",
        "tasks": ["encode"],
        "outputs": ["dense"],
        "dims": {"dense": 384},
        "max_tokens": 256,
        "pooling": "mean",
        "sources": [{"directory": str(directory)}],
    }


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the weights are: whole ones, ones cut short, and an empty file."""
    whole = weights(MINILM)
    broken, empty = tmp_path_factory.mktemp("places") / "broken", tmp_path_factory.mktemp("empty")
    shutil.copytree(whole, broken)
    (broken / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes()[:-1_000_000])
    (empty / "model.safetensors").touch()
    return {COLD: whole, BROKEN: broken, EMPTY: empty}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, places: dict[str, Path]):
    """A server that has loaded nothing yet, not even a library."""
    for model in (MINILM, RERANKER, NER, PII):
        weights(model)
    catalog = tmp_path_factory.mktemp("catalog")
    models = {"models": [entry(name, directory) for name, directory in places.items()]}
    (catalog / "test.yaml").write_text(yaml.safe_dump(models))
    place = tmp_path_factory.mktemp("fresh")
    with serving(place, memory="1GiB", catalog=catalog, load_cooldown=COOLDOWN) as server:
        yield server


async def test_the_very_first_requests_may_be_for_several_models_at_once(fresh: Server):
    calls = [encode("a"), score("a", "b"), extract("Ann met Bob."), extract("Ann met Bob.", model=PII)]

    async with clients(fresh.url) as session:
        answers = await together(session, calls)

    assert [status for status, _ in answers] == [200] * len(calls), answers


async def test_a_hundred_first_callers_share_one_load_and_a_load_that_fails_is_tried_again(
    fresh: Server, places: dict[str, Path]
):
    async with clients(fresh.url) as session:
        calls = [encode(f"parcel {number}", model=COLD) for number in range(CALLERS)]
        answers = await together(session, calls)

        assert Counter(status for status, _ in answers) == {200: CALLERS}
        assert fresh.changes(COLD, "loaded") == 1
        made = np.concatenate([vectors(body) for _, body in answers])
        assert len({vector.tobytes() for vector in made}) == CALLERS

        for name in (BROKEN, EMPTY):
            await fails_alike_for_all(fresh, session, name)
            shutil.copytree(places[COLD], places[name], dirs_exist_ok=True)
        await asyncio.sleep(COOLDOWN)
        for name in (BROKEN, EMPTY):
            status, body = await ask(session, encode("parcel 7", model=name))
            assert status == 200, body
            np.testing.assert_allclose(vectors(body)[0], made[7], atol=1e-5)
            assert fresh.model(name)["state"] == "loaded"


async def fails_alike_for_all(fresh: Server, session, name: str):
    answers = await together(session, [encode(f"parcel {n}", model=name) for n in range(CALLERS)])
    soon = await ask(session, encode("too soon", model=name))

    said = Counter((status, body["detail"]["code"], body["detail"]["message"]) for status, body in answers)
    ((status, code, message),) = said
    assert (status, code) == (502, "MODEL_LOAD_FAILED")
    assert name in message
    assert (soon[0], soon[1]["detail"]["code"]) == (502, "MODEL_LOAD_FAILED")
    assert fresh.changes(name, "loaded") == 0
