from __future__ import annotations

import re

import pytest

from engine.errors import EngineError
from tests import simulation
from tests.web.console.conftest import HTML, HTMX, Seen, console
from web.console.pages import NAVIGATION

pytestmark = pytest.mark.anyio

PAGES = [
    *(path for _, _, path, _ in NAVIGATION),
    "/?q=org&state=loaded&sort=p99&page=2",
    "/console/devices?bytes=2GiB",
    "/console/devices?bytes=nonsense",
    "/console/requests?kind=slowest&model=org/a",
    "/console/requests?kind=failed",
    "/console/requests/q",
    "/console/audit?of=org/a&rows=5",
    "/console/act?model=org/a",
    "/console/models/org/a",
    "/console/models/org/b",
]


async def busy(seen) -> None:
    """Something has happened."""
    await seen.engine.submit(simulation.request("org/a", "hello"))
    with pytest.raises(EngineError):
        await seen.engine.submit(simulation.request("org/a"))


@pytest.mark.parametrize("base", ["", "/serai"])
async def test_no_page_has_what_the_policy_forbids_and_every_link_leads_somewhere(base):
    async with console(base_path=base) as seen:
        await busy(seen)
        links = set()
        for path in PAGES:
            text = Seen(await seen.page(base + path))
            assert text.forbidden == [], path
            assert len(text.ids) == len(set(text.ids)), path
            links |= {link for link in text.links if not link.startswith("#")}
        for link in sorted(links):
            assert link.startswith(f"{base}/"), link
            async with seen.http.get(link, headers=HTML) as answer:
                assert answer.status == 200, link


async def test_a_panel_that_asks_for_itself_gets_itself_and_nothing_around_it():
    async with console() as seen:
        await busy(seen)
        for path in PAGES:
            whole, panel = await seen.page(path), await seen.page(path, HTMX)
            assert "<html" in whole and "<html" not in panel, path
            assert Seen(panel).forbidden == []


async def test_what_somebody_wrote_is_text_wherever_it_is_shown():
    async with console() as seen:
        evil = "<script>alert(1)</script>"
        with pytest.raises(EngineError):
            await seen.engine.submit(simulation.request("org/a", id=evil, principal=evil))
        for path in (
            f"/?q={evil}",
            "/console/requests",
            "/console/requests?kind=failed",
            f"/console/requests?model={evil}",
            f"/console/audit?of={evil}",
            f"/console/devices?bytes={evil}",
            f"/console/playground?model={evil}",
            "/console/models/org/a",
        ):
            assert evil not in await seen.page(path), path
        _, text = await seen.do(model="org/a", action="drain", reason=evil)
        assert evil not in text and "&lt;script&gt;" in text


async def test_what_is_not_known_is_n_a_and_not_an_error():
    async with console() as seen:
        text = await seen.page("/")
        model = await seen.page("/console/models/org/a")

    assert 'id="d0-heat">n/a' in text and 'id="d0-util">n/a' in text
    assert "not known before it was asked for once" in model


async def test_the_table_is_filtered_sorted_and_cut_into_pages():
    async with console(*(f"org/m{n:03}" for n in range(250))) as seen:
        await seen.engine.submit(simulation.request("org/m200", "hello"))
        first, third = await seen.page("/"), await seen.page("/?page=3")
        found = await seen.page("/?q=m01&sort=name")

    assert first.index("org/m200") < first.index("org/m000")
    assert "1 to 100 of 250" in first and "201 to 250 of 250" in third
    assert re.findall(r'data-model="(org/m\d+)"', found) == [f"org/m{n:03}" for n in range(10, 20)]
    assert "10 of 250 models" in found


@pytest.mark.parametrize("query", ["page=9999999", "page=-1", "page=²", "sort=x&state=y", "q=%00"])
async def test_a_query_that_makes_no_sense_is_taken_as_none(query):
    async with console() as seen:
        assert "org/a" in await seen.page(f"/?{query}") or query == "q=%00"


async def test_a_request_is_told_with_its_stages_and_who_shared_its_batch():
    async with console(slots=1) as seen:
        import anyio

        async with anyio.create_task_group() as tasks:
            for n in range(4):
                tasks.start_soon(seen.engine.submit, simulation.request("org/a", "hello there", id=f"r{n}"))
        text = await seen.page("/console/requests/r3")
        async with seen.http.get("/console/requests/none", headers=HTML) as answer:
            assert answer.status == 404

    assert all(f">{stage}<" in text for stage in ("prepare", "queue", "load", "run", "encode"))
    assert "/console/requests/r2" in text
    assert '<rect class="load"' in text


async def test_a_setting_says_where_it_came_from_and_secrets_are_masked():
    async with console(session_key="hush-hush", hub_token="dear") as seen:
        text = await seen.page("/console/settings")

    assert "hush-hush" not in text and "dear<" not in text
    assert text.count("••••••") == 2
    assert "interactive_target" in text and "200ms" in text


async def test_a_ledger_is_told_to_the_byte_and_who_would_leave():
    async with console() as seen:
        await seen.engine.submit(simulation.request("org/a", "hello"))
        text = await seen.page("/console/devices?bytes=4GiB")

    assert "104\u202f857\u202f600 B" in text
    assert re.search(r"would leave: <b>org/a</b>", text)


async def test_a_model_says_what_is_in_force_and_whence():
    async with console() as seen:
        await seen.engine.submit(simulation.request("org/a", "hello"))
        text = await seen.page("/console/models/org/a")

    assert re.search(r"family</th><td class=\"wrap\">simulated</td><td>entry", text)
    assert re.search(r"weight</th><td class=\"wrap\">1.0</td><td class=\"soft\">default", text)
    assert re.search(r"<td>loaded", text)
    assert '<rect class="ready"' in text


async def test_the_pager_keeps_what_was_filtered_by():
    async with console(*[f"org/m{number:03}" for number in range(150)]) as seen:
        text = Seen(await seen.page("/?q=org&state=available&sort=name"))
        assert "/?q=org&state=available&sort=name&page=2" in text.links
