"""Under load and in small: whatever is done to a server, its other clients are answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.acceptance import chaos
from tests.acceptance.chaos import under_load
from tests.acceptance.serving import Server
from tests.acceptance.simulated import BROKEN, GREEDY, HUGE, STALLED, simulated
from tests.weights import weights

pytestmark = pytest.mark.anyio
CALLERS = 8


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    weights(chaos.DOCUMENTS)
    with simulated(tmp_path_factory.mktemp("chaos")) as running:
        yield running


async def test_a_document_child_that_is_killed_fails_its_document_alone(server: Server) -> None:
    async with under_load(server, CALLERS) as (session, load):
        hit, after = await chaos.kill_a_document_child(server, session)

    assert (hit, after) == ("INFERENCE_ERROR", "200")
    assert set(load.seen) == {"200"}


async def test_loads_that_fail_stall_or_do_not_fit_hurt_only_who_asked(server: Server) -> None:
    async with under_load(server, CALLERS) as (session, load):
        seen = await chaos.fail_loads(session, 4)

    assert seen == {
        BROKEN: Counter(MODEL_LOAD_FAILED=4),
        STALLED: Counter(MODEL_LOADING=4),
        HUGE: Counter(INSUFFICIENT_MEMORY=4),
        f"{GREEDY}, more than fits": Counter(RESOURCE_EXHAUSTED=4),
        f"{GREEDY}, what fits": Counter({"200": 4}),
    }
    assert set(load.seen) == {"200"}
