"""The console's routes as everybody, and that none was forgotten."""

from __future__ import annotations

import anyio
import pytest

from engine.access.principals import BY_ROLE, BY_SCOPE, Action, Role, Scope
from engine.access.usage import Used
from engine.requests import ServiceClass
from tests.web.access.conftest import bearer, log_in
from tests.web.access.test_routes import ask, bare
from web.access import console, routes
from web.console.routes import ROUTES

pytestmark = pytest.mark.anyio

EVERY = [route for route in map(bare, ROUTES) if route[1] != "/console/live"]
HTML = {"Accept": "text/html"}


def test_every_route_says_what_it_needs_and_none_is_there_for_nothing():
    assert {routes.pattern(*bare(route)) for route in ROUTES} == set(console.NEEDS)


def test_only_looking_needs_no_more_than_to_look():
    for said, action in console.NEEDS.items():
        if not said.startswith("GET"):
            assert action in (Action.OPERATE, Action.ADMINISTER), said


@pytest.mark.parametrize("role", list(Role))
async def test_a_user_passes_exactly_the_routes_of_their_role(guarded, browser, role):
    guarded.user("ann", role)
    guarded.user("admin", Role.ADMIN)
    await log_in(browser, "ann")

    for method, path in EVERY:
        said = routes.pattern(method, path)
        status = await ask(browser, method, path, {})
        assert (status == 403) is (console.NEEDS[said] not in BY_ROLE[role]), (said, status)
        assert status not in (401, 500), said


@pytest.mark.parametrize("scope", list(Scope))
async def test_a_key_passes_exactly_the_routes_of_its_scope(guarded, http, scope):
    headers = bearer(guarded.key("k", scope))
    for method, path in EVERY:
        said = routes.pattern(method, path)
        status = await ask(http, method, path, headers)
        assert (status == 403) is (console.NEEDS[said] not in BY_SCOPE[scope]), (said, status)


async def test_who_is_not_known_is_led_to_the_login(guarded, http):
    guarded.key("k")
    async with http.get("/", headers=HTML, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/login?next=/")
    async with http.get("/console/queues", headers={**HTML, "HX-Request": "true"}) as answer:
        assert (answer.status, answer.headers["HX-Redirect"]) == (401, "/login")


async def test_a_key_that_calls_models_does_not_see_the_console(guarded, http):
    headers = {**HTML, **bearer(guarded.key("k", Scope.CALL))}
    async with http.get("/", headers=headers) as answer:
        assert answer.status == 403


async def test_a_viewer_is_offered_nothing_that_they_may_not_do(guarded, browser):
    guarded.user("ann", Role.VIEWER)
    await log_in(browser, "ann")
    async with browser.get("/", headers=HTML) as answer:
        text = await answer.text()

    assert "/console/do" not in text and "/console/act" not in text
    assert "Playground" not in text and "Keys and users" not in text
    assert ">ann<" in text and "viewer" in text


async def test_another_sites_form_does_nothing(guarded, browser):
    guarded.user("ann", Role.OPERATOR)
    await log_in(browser, "ann")
    form = {"model": "fake/encoder", "action": "unpin"}
    async with browser.post("/console/do", data=form, headers={"Sec-Fetch-Site": "cross-site"}) as answer:
        assert answer.status == 403

    assert guarded.engine.orders == []


async def test_what_is_done_is_done_by_who_is_logged_in(guarded, browser):
    guarded.user("ann", Role.OPERATOR)
    await log_in(browser, "ann")
    form = {"model": "fake/encoder", "action": "unpin", "reason": "enough"}
    async with browser.post("/console/do", data=form, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/console/models/fake/encoder")

    (order,) = guarded.engine.orders
    assert (order.who, order.reason, order.action) == ("user:ann", "enough", "unpin")


async def test_a_stream_ends_when_its_user_is_gone(guarded, browser, monkeypatch):
    from engine.access.changes import Revoke
    from web.console import live

    monkeypatch.setattr(live, "CHECK", 0.1)
    guarded.user("ann", Role.VIEWER)
    guarded.user("admin", Role.ADMIN)
    await log_in(browser, "ann")
    async with browser.get("/console/live") as stream:
        assert b"s-waiting" in await stream.content.readuntil(b"\n\n")
        guarded._do(Revoke("user:ann"))
        with anyio.fail_after(5):
            await stream.content.read()


async def test_an_admin_makes_a_user_and_a_key_whose_secret_is_shown_once(guarded, browser):
    guarded.user("root", Role.ADMIN)
    await log_in(browser, "root")
    form = {"act": "add-user", "name": "bob", "role": "viewer", "password": "correct horse battery"}
    async with browser.post("/console/people", data=form, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/console/people")
    async with browser.post(
        "/console/people", data={"act": "add-key", "name": "ci", "scope": "call"}
    ) as answer:
        made = await answer.text()
    async with browser.get("/console/people", headers=HTML) as answer:
        later = await answer.text()

    secret = made.partition("<code>serai_")[2].partition("<")[0]
    assert secret and secret not in later
    assert "bob" in later and "ci" in later
    assert guarded.engine.access.user("bob").role is Role.VIEWER
    assert ("user:root", "create", "user:bob", "ok") in guarded.audit()


async def test_a_keys_models_class_and_limits_are_as_the_form_said_and_so_is_what_it_used(guarded, browser):
    guarded.user("root", Role.ADMIN)
    await log_in(browser, "root")
    form = {
        "act": "add-key",
        "name": "ci",
        "scope": "call",
        "models": "org/*, other/one",
        "class": "background",
    }
    form |= {"rate": "2.5", "burst": "7", "concurrency": "3"}
    async with browser.post("/console/people", data=form) as answer:
        assert answer.status == 200
    found = (p for p in guarded.engine.access.principals.values() if p.name == "ci")
    made = next(found)
    spent = guarded.engine.access.usage.by.setdefault(made.id, Used(input_tokens=1500, device_seconds=4.0))
    spent.requests["ok"] += 2
    async with browser.get("/console/people", headers=HTML) as answer:
        text = await answer.text()

    assert made.models == ("org/*", "other/one") and made.service_class is ServiceClass.BACKGROUND
    assert (made.limits.rate, made.limits.burst, made.limits.concurrency) == (2.5, 7, 3)
    assert "org/*, other/one" in text and ">background<" in text
    assert "2.5/s, 7 at once; 3 in flight" in text
    assert "2 requests, 1500 tokens, 4.0 s of device" in text


async def test_a_form_that_is_wrong_is_told_on_the_page(guarded, browser):
    guarded.user("root", Role.ADMIN)
    await log_in(browser, "root")
    for form in (
        {"act": "add-user", "name": "B<b>", "role": "viewer", "password": "correct horse battery"},
        {"act": "add-user", "name": "bob", "role": "king", "password": "correct horse battery"},
        {"act": "add-user", "name": "bob", "role": "viewer", "password": "x"},
        {"act": "revoke", "target": "user:nobody"},
        {"act": "add-key", "name": "ci", "scope": "call", "rate": "a lot"},
        {"act": "add-key", "name": "ci", "scope": "call", "class": "royal"},
        {"act": "add-key", "name": "ci", "scope": "everything"},
        {"act": "nothing"},
    ):
        async with browser.post("/console/people", data=form) as answer:
            text = await answer.text()
        assert answer.status == 400, form
        assert 'class="error"' in text and "<b>" not in text.replace("<b id", "")
