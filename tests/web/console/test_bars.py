from __future__ import annotations

import pytest

from engine.view import DeviceView, EngineView
from tests.web.console.conftest import console
from web.console.bars import UNATTRIBUTED, bars


def test_what_no_line_explains_says_by_its_title_what_it_is():
    device = DeviceView("cpu", "cpu", 100, 80, {"weights": 10}, unattributed_bytes=5)
    (bar,) = bars(EngineView((), (device,)))

    titles = {part.kind: part.title for part in bar.parts}
    assert titles["unattributed"] == f"unattributed: {UNATTRIBUTED}"
    assert titles["pinned"] == "pinned"


@pytest.mark.anyio
async def test_the_title_stands_on_the_bar_in_the_legend_and_in_the_ledger():
    async with console() as seen:
        assert (await seen.page("/console/devices")).count(UNATTRIBUTED) == 3
