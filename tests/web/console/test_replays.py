"""Replays as pages: a process of its own sends, and its report stays."""

from __future__ import annotations

import json

import anyio
import pytest

from tests.web.console.conftest import HTML
from tests.web.console.test_recordings import monday, over, post, recorded

pytestmark = pytest.mark.anyio


async def test_a_replay_runs_in_a_process_of_its_own_and_its_report_is_kept(tmp_path):
    async with recorded(tmp_path) as seen:
        await monday(seen)
        status, where = await post(
            seen, "replays", act="start", recording="monday", speed="0.5", only="a", reason="to see"
        )
        assert status == 303, where
        status, text = await post(seen, "replays", act="start", recording="monday")
        assert status == 409 and "one at a time" in text
        text = await over(seen, where)
        assert "0.5 times as fast, only a" in text and "By model and class" in text
        assert 'scope="row">a<' in text and 'scope="row">b<' not in text
        async with seen.http.get(f"{where}/report.json") as answer:
            report = json.loads(await answer.text())
        async with seen.http.get(f"{where}/report.html") as answer:
            assert "style-src 'sha256-" in answer.headers["Content-Security-Policy"]
            assert "Replay of monday" in await answer.text()
        listed = await seen.page("/console/replays")
        acts = [
            (row.action, row.target, row.reason, row.outcome)
            for row in await seen.engine.operators.history(9)
        ]
        assert (await post(seen, "replays", act="delete", id=where.rpartition("/")[2]))[0] == 303
        assert "Nothing was replayed" in await seen.page("/console/replays")
    assert report["replayed"]["requests"] == 20 and report["replayed"]["outcomes"] == {"ok": 20}
    assert where in listed
    assert ("replay", "monday", "to see", "ok") in acts


async def test_a_replay_that_is_stopped_keeps_what_it_measured(tmp_path):
    async with recorded(tmp_path) as seen:
        await monday(seen)
        _, where = await post(seen, "replays", act="start", recording="monday", speed="0.01")
        with anyio.fail_after(50):
            while "answered" not in await seen.page(where):  # noqa: ASYNC110 - a process tells
                await anyio.sleep(0.1)
        assert await post(seen, f"{where.removeprefix('/console/')}/stop") == (303, where)
        text = await seen.page(where)
        assert 'class="badge stopped"' in text and "By model and class" in text


@pytest.mark.parametrize(
    "form",
    [
        {"speed": "0"},
        {"speed": "fast"},
        {"scale": "-1"},
        {"method": "magic"},
        {"between": "5", "until": "2"},
        {"seed": "1.5"},
        {"size_scale": "nan"},
    ],
)
async def test_a_replay_that_makes_no_sense_is_refused_with_what_was_said_kept(tmp_path, form):
    async with recorded(tmp_path) as seen:
        await monday(seen, 1)
        status, text = await post(seen, "replays", act="start", recording="monday", **form)
        assert status == 400 and 'role="alert"' in text
        assert (await post(seen, "replays", act="start", recording="sunday"))[0] == 404
        async with seen.http.get("/console/replays/none", headers=HTML) as answer:
            assert answer.status == 404


async def test_a_recording_that_still_runs_is_not_replayed(tmp_path):
    async with recorded(tmp_path) as seen:
        await seen.engine.recordings.start("now")
        status, text = await post(seen, "replays", act="start", recording="now")
        assert status == 400 and "still being recorded" in text
