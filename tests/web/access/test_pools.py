"""One key cannot take what others share."""

from __future__ import annotations

import pytest

from tests.web.access.conftest import Guarded, bearer
from web.api.pools import MOST_EACH

pytestmark = pytest.mark.anyio


async def test_a_key_has_so_many_pools_and_leaves_the_table_to_others(http, guarded: Guarded):
    greedy, other = bearer(guarded.key("greedy")), bearer(guarded.key("other"))

    async def create(name: str, who: dict[str, str]) -> int:
        async with http.post("/v1/pools", json={"name": name}, headers=who) as answer:
            return answer.status

    made = [await create(f"p{n}", greedy) for n in range(MOST_EACH)]
    assert set(made) == {200}
    assert await create("more", greedy) == 503
    assert await create("p0", greedy) == 200, "one that is there takes new wishes"
    assert await create("mine", other) == 200
