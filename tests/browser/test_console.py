"""What an operator sees and does, in a real browser, against the real server and real models."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import httpx
from playwright.sync_api import Page, expect

from tests.acceptance.asking import MINILM, NER, RERANKER, encode, extract, score
from tests.acceptance.serving import PATIENCE, Server, serving
from tests.browser.conftest import PHONE, Tabs
from tests.weights import weights

expect.set_options(timeout=30_000)
LONG = "the quick brown fox jumps over the lazy dog " * 12
PAGES = (
    "/",
    "/console/queues",
    "/console/devices?bytes=1GiB",
    "/console/requests",
    "/console/playground",
    "/console/audit",
    "/console/settings",
    "/console/people",
    "/console/entries",
    f"/console/models/{MINILM}",
    f"/console/act?model={MINILM}",
)


def row(page: Page, model: str):
    return page.locator(f'tr[data-model="{model}"]')


def call(server: Server, path: str, body: dict) -> int:
    return httpx.post(
        server.url + path, json=body, headers={"Accept": "application/json"}, timeout=PATIENCE
    ).status_code


@contextmanager
def traffic(server: Server, clients: int = 3, items: int = 8) -> Iterator[None]:
    """Requests for MiniLM, one after the other from each of several clients, until the block ends."""
    path, body = encode(*[LONG] * items)
    enough = threading.Event()

    def ask() -> None:
        while not enough.is_set():
            call(server, path, body)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def test_a_queue_is_seen_to_grow_while_its_model_loads_and_to_drain(server: Server, tabs: Tabs):
    server.http.post(f"/v1/models/{MINILM}/unload")
    page = tabs.open(server.url)
    mine = row(page, MINILM)
    expect(mine).to_have_attribute("data-state", "available")
    path, body = encode(*[LONG] * 40)

    callers = [threading.Thread(target=call, args=(server, path, body)) for _ in range(3)]
    for caller in callers:
        caller.start()

    waiting = mine.locator("td[id$='-q']")
    expect(waiting).to_have_text(re.compile(r"^\d"))
    expect(page.locator("#s-waiting")).to_have_text(re.compile(r"[1-9]"))
    expect(mine).to_have_attribute("data-state", "loaded")
    expect(waiting).to_have_text("–", timeout=PATIENCE * 1000)
    for caller in callers:
        caller.join()
    expect(mine.locator("td[id$='-cold']")).not_to_have_text("–")


def test_a_pinned_model_stays_under_pressure_and_another_leaves(tmp_path, tabs: Tabs):
    for model in (MINILM, NER, RERANKER):
        weights(model)
    with serving(tmp_path, memory="300MiB", headroom=0) as server:
        assert call(server, *encode("hello")) == 200
        assert call(server, *extract("Ada Lovelace")) == 200
        page = tabs.open(server.url)
        expect(row(page, NER)).to_have_attribute("data-state", "loaded")
        row(page, MINILM).get_by_role("button", name="Pin", exact=False).first.click()
        confirm = page.locator("#dialog button.hurts")
        expect(confirm.or_(page.locator(".toast"))).to_be_visible()
        if confirm.is_visible():
            confirm.click()
        expect(row(page, MINILM)).to_have_attribute("data-pinned", "1")
        expect(row(page, MINILM)).to_contain_text("pinned by operator")

        assert call(server, *score("who?", "a passage")) == 200

        expect(row(page, RERANKER)).to_have_attribute("data-state", "loaded")
        expect(row(page, NER)).to_have_attribute("data-state", "available")
        expect(row(page, MINILM)).to_have_attribute("data-state", "loaded")
        row(page, MINILM).get_by_role("button", name="Unpin").click()
        expect(row(page, MINILM)).to_have_attribute("data-pinned", "0")


def test_an_unload_with_work_says_its_cost_and_the_model_comes_back(server: Server, tabs: Tabs):
    with traffic(server):
        page = tabs.open(server.url)
        expect(row(page, MINILM)).to_have_attribute("data-state", "loaded")
        loads = server.changes(MINILM, "loaded")

        row(page, MINILM).get_by_role("link", name="All actions").click()
        dialog = page.locator("#dialog")
        expect(dialog).to_contain_text("Frees")
        expect(dialog).to_contain_text("The next request waits for it to come back")
        dialog.locator("#reason").fill("to see it come back")
        dialog.get_by_role("button", name="Unload").click()

        expect(dialog).to_be_hidden()
        server.until(lambda: server.changes(MINILM, "loaded") > loads)
        expect(row(page, MINILM)).to_have_attribute("data-state", "loaded")
    page.goto(f"{server.url}/console/audit")
    expect(page.locator("tbody tr").first).to_contain_text("to see it come back")


def test_two_browsers_see_what_the_other_does(server: Server, tabs: Tabs):
    one, other = tabs.open(server.url), tabs.open(server.url)
    audit = tabs.open(f"{server.url}/console/audit")

    row(one, NER).get_by_role("button", name="Pin", exact=False).first.click()
    expect(one.locator(".toast")).to_contain_text(re.compile("is pinned|pin is under way"))
    expect(row(other, NER)).to_have_attribute("data-pinned", "1", timeout=120_000)
    expect(audit.locator("tbody tr").first).to_contain_text("pin")

    row(other, NER).get_by_role("button", name="Unpin").click()
    expect(row(one, NER)).to_have_attribute("data-pinned", "0")
    one.locator("[data-undo]").click()
    expect(one.locator("#dialog")).to_contain_text("unpin by operator")


def test_everything_can_be_done_by_keys(server: Server, tabs: Tabs):
    page = tabs.open(server.url)
    page.keyboard.press("/")
    page.keyboard.type("core_web")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("p")  # goes into the field
    expect(page.locator("#filter")).to_have_value("core_webp")
    page.keyboard.press("Backspace")
    page.keyboard.press("Escape")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("j")
    expect(row(page, NER)).to_be_focused()
    page.keyboard.press("p")
    expect(row(page, NER)).to_have_attribute("data-pinned", "1")
    page.keyboard.press("u")
    expect(row(page, NER)).to_have_attribute("data-pinned", "0")
    page.keyboard.press("a")
    expect(page.locator("#dialog")).to_be_visible()
    expect(page.locator("#reason")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    row(page, NER).focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/console/models/spacy/en_core_web_sm"))
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()


def test_no_page_is_wider_than_a_phone_and_none_does_what_its_policy_forbids(server: Server, tabs: Tabs):
    call(server, *encode("hello"))
    last = tabs.open(f"{server.url}/console/requests").locator("tbody tr a").first.get_attribute("href")
    assert last is not None
    for options in ({"viewport": PHONE}, {"color_scheme": "dark"}, {"java_script_enabled": False}):
        page = tabs.open(server.url, **options)
        for path in (*PAGES, last):
            page.goto(server.url + path)
            page.wait_for_timeout(150)
            if "viewport" in options:
                assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"], path
            if "java_script_enabled" not in options:
                assert page.evaluate("window.violations") == [], path


def test_a_model_has_charts_and_a_request_its_waterfall_beside_those_that_shared_its_batch(
    server: Server, tabs: Tabs
):
    with traffic(server, clients=4, items=2):
        page = tabs.open(f"{server.url}/console/models/{MINILM}")
        newest = page.locator(".charts [data-newest]")
        expect(newest).to_have_count(7)
        for chart in newest.all():
            expect(chart).to_have_text(re.compile(r"\d"))
        drawn = page.evaluate(
            """() => [...document.querySelectorAll(".charts canvas")].map((canvas) => {
            const {width, height} = canvas;
            const {data} = canvas.getContext("2d").getImageData(0, 0, width, height);
            return data.some((each) => each > 0);})"""
        )
        assert drawn == [True] * 7
        queues = tabs.open(f"{server.url}/console/queues")
        why = "waited|share|late|due|only|interactive|first"
        expect(queues.locator("section[aria-labelledby='next'] tbody")).to_contain_text(re.compile(why))
    page.goto(f"{server.url}/console/requests?model={MINILM}")
    page.locator("tbody tr a").first.click()
    expect(page.locator(".waterfall tr")).to_have_count(6)
    run = page.locator(".waterfall rect.run")
    assert float(run.get_attribute("width") or 0) > 0
    expect(page.locator("section[aria-labelledby='batches'] tbody td").first).to_have_text(re.compile(r"\d"))


def test_a_hidden_tab_pauses_and_comes_back_up_to_date(server: Server, tabs: Tabs):
    page, other = tabs.open(server.url), tabs.open(server.url)
    expect(page.locator("#age")).to_have_attribute("data-age", "fresh")
    hide = """(hidden) => { Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange")); }"""

    page.evaluate(hide, True)
    expect(page.locator("#age")).to_have_attribute("data-age", "paused")
    row(other, NER).get_by_role("button", name="Pin", exact=False).first.click()
    expect(row(other, NER)).to_have_attribute("data-pinned", "1")
    other.wait_for_timeout(1000)
    expect(row(page, NER)).to_have_attribute("data-pinned", "0")

    page.evaluate(hide, False)
    expect(row(page, NER)).to_have_attribute("data-pinned", "1")
    expect(page.locator("#age")).to_have_attribute("data-age", "fresh")
    row(other, NER).get_by_role("button", name="Unpin").click()
    expect(row(page, NER)).to_have_attribute("data-pinned", "0")


def test_it_is_dark_where_the_system_is(server: Server, tabs: Tabs):
    def brightness(scheme: str) -> int:
        page = tabs.open(server.url, color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    assert brightness("dark") < 150 < 600 < brightness("light")


def test_without_a_script_a_model_is_pinned_and_unpinned_all_the_same(server: Server, tabs: Tabs):
    page = tabs.open(server.url, java_script_enabled=False)
    row(page, NER).get_by_role("button", name="Pin", exact=False).first.click()
    expect(page).to_have_url(re.compile("/console/models/"))
    expect(page.locator("[data-row]")).to_have_attribute("data-pinned", "1")
    page.get_by_role("button", name="Unpin").click()
    expect(page.locator("[data-row]")).to_have_attribute("data-pinned", "0")


def test_several_models_are_pinned_by_keys_alone(server: Server, tabs: Tabs):
    page = tabs.open(server.url)
    for model in (NER, MINILM):
        box = row(page, model).locator(".box input")
        box.focus()
        page.keyboard.press("Space")
        expect(box).to_be_checked()
    page.wait_for_timeout(2500)  # a panel that asks for itself again must not forget what is chosen
    expect(page.locator(".box input:checked")).to_have_count(2)
    for action, pinned in (("pin", "1"), ("unpin", "0")):
        page.locator(f'#bulk button[value="{action}"]').focus()
        page.keyboard.press("Enter")
        page.locator("#dialog button.hurts").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#dialog")).to_be_hidden()
        for model in (NER, MINILM):
            expect(row(page, model)).to_have_attribute("data-pinned", pinned)


AGES = """() => {
    const age = document.getElementById("age");
    window.ages = [];
    new MutationObserver(() => {
        if (age.dataset.age !== "fresh" && age.dataset.age !== ages.at(-1)) ages.push(age.dataset.age);
    }).observe(age, { attributes: true });
}"""
"""Each age that the page shows from then on, since one may pass before anybody looks."""


def on_port(port: str) -> tuple[str, ...]:
    """`serai`, on this port instead of any free one."""
    code = "import sys; from web.__main__ import main; sys.argv[sys.argv.index('--port') + 1] = "
    return (sys.executable, "-c", f"{code}{port!r}; main()")


def test_a_tab_says_that_it_is_stale_and_goes_on_after_a_restart(tmp_path, tabs: Tabs):
    weights(MINILM)
    with serving(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        page = tabs.open(server.url)
        expect(page.locator("#age")).to_have_attribute("data-age", "fresh")
        page.evaluate(AGES)
    expect(page.locator("#age")).to_have_attribute("data-age", "dead")
    assert page.evaluate("ages") == ["stale", "dead"]

    with serving(tmp_path, on_port(port)) as server:
        assert call(server, *encode("hello")) == 200
        expect(page.locator("#age")).to_have_attribute("data-age", "fresh")
        expect(row(page, MINILM)).to_have_attribute("data-state", "loaded")
        page.goto("about:blank")


def log_in(page: Page, url: str, name: str, password: str) -> None:
    page.goto(url)
    page.fill("#name", name)
    page.fill("#password", password)
    page.get_by_role("button", name="Log in").click()


def test_a_viewer_sees_everything_and_can_do_nothing(tmp_path, tabs: Tabs):
    with serving(tmp_path) as server:
        admin = tabs.open(f"{server.url}/console/people")
        form = admin.locator("form.add").first
        for name, role in (("root", "admin"), ("vic", "viewer")):
            form.locator("[name=name]").fill(name)
            form.locator("[name=role]").select_option(role)
            form.locator("[name=password]").fill("correct horse battery")
            form.get_by_role("button", name="Add").click()
            if name == "root":
                log_in(admin, f"{server.url}/console/people", "root", "correct horse battery")
            expect(admin.locator("tbody").first).to_contain_text(name)
            form = admin.locator("form.add").first

        viewer = tabs.open(f"{server.url}/login")
        log_in(viewer, f"{server.url}/login", "vic", "correct horse battery")
        expect(row(viewer, MINILM)).to_be_visible()
        expect(viewer.locator("#age")).to_have_attribute("data-age", "fresh")
        assert viewer.get_by_role("button", name="Pin").count() == 0
        assert viewer.get_by_role("link", name="Playground").count() == 0
        status = viewer.evaluate(
            """async (model) => (await fetch("/console/do", {method: "POST",
            body: new URLSearchParams({model, action: "pin"})})).status""",
            MINILM,
        )
        assert status == 403
        assert server.process.poll() is None


def test_limits_are_adjusted_and_a_model_is_loaded_anew_and_drained(server: Server, tabs: Tabs):
    call(server, *extract("Ada Lovelace"))
    page, other = tabs.open(server.url), tabs.open(f"{server.url}/console/models/{NER}")
    dialog = page.locator("#dialog")

    def act(name: str, **fields: str) -> None:
        row(page, NER).get_by_role("link", name="All actions").click()
        for field, value in fields.items():
            dialog.locator("summary").click()
            dialog.locator(f"#adjust-{field}").fill(value)
        dialog.get_by_role("button", name=name, exact=True).click()
        expect(dialog).to_be_hidden()

    act("Adjust", max_batch_jobs="3")
    expect(other.locator("tr", has_text="limits.max_batch_jobs")).to_contain_text("operator")
    page.locator("[data-undo]").click()
    expect(other.locator("tr", has_text="limits.max_batch_jobs").filter(has_text="operator")).to_have_count(0)

    act("Reload")
    expect(page.locator(".toast")).to_contain_text("was loaded anew")
    act("Drain")
    expect(row(page, NER)).to_have_attribute("data-paused", "1")
    expect(row(page, NER)).to_have_attribute("data-state", "available")
    assert call(server, *extract("Ada Lovelace")) == 503
    act("Resume")
    assert call(server, *extract("Ada Lovelace")) == 200
    expect(other.locator(".log tbody")).to_contain_text("loaded unit=")


def test_a_chart_of_jobs_where_none_waited_labels_whole_numbers_once(server: Server, tabs: Tabs):
    call(server, *encode("first"))
    page = tabs.open(f"{server.url}/")
    page.add_init_script(
        """window.drawn = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
            window.drawn.push([this.canvas.closest(".plot")?.dataset.kind, text]);
            return write.call(this, text, ...where);
        };"""
    )
    page.goto(f"{server.url}/console/models/{MINILM}")
    page.wait_for_function("window.drawn.some(([kind, text]) => kind === 'count' && text === '0')")

    said = page.evaluate("window.drawn.filter(([kind]) => kind === 'count').map(([, text]) => text)")
    assert ("1", "1") not in list(pairwise(said))  # times of the day may have such figures too
