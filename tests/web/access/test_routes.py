"""Every route as everybody: who may, who may not, and that no route was forgotten."""

from __future__ import annotations

import re

import pytest
from aiohttp import ClientSession
from aiohttp.web import RouteDef

from engine.access.principals import BY_ROLE, BY_SCOPE, Action, Role, Scope
from engine.config import Settings
from tests.web.access.conftest import bearer, log_in
from tests.web.conftest import serving
from web.access import routes
from web.app import ROUTES

pytestmark = pytest.mark.anyio


def bare(route) -> tuple[str, str]:
    """Method and path; a pattern's name without its expression."""
    if isinstance(route, RouteDef):
        return route.method, re.sub(r"{(\w+)(:[^}]*)?}", r"{\1}", route.path)
    return "GET", route.prefix


EVERY = [bare(route) for route in ROUTES]
OPEN = {
    "GET /healthz",
    "GET /livez",
    "GET /readyz",
    "GET /health",
    "GET /tei/{model}/health",
    "GET /v1/jobs/results/{ref}",
    "GET /static",
    "GET /login",
    "POST /login",
    "POST /first-run",
    "POST /logout",
}


def test_no_route_is_missing_from_the_table_and_none_is_there_for_nothing():
    said = {routes.pattern(*route) for route in EVERY}

    assert said == routes.OPEN | set(routes.NEEDS)
    assert not routes.OPEN & set(routes.NEEDS)


def test_what_is_open_is_probes_and_the_way_in_and_nothing_else():
    assert routes.OPEN == OPEN


def test_only_an_admin_administers_and_looking_is_never_more_than_looking():
    for said, action in routes.NEEDS.items():
        if said.startswith(("GET /v1/admin/keys", "GET /v1/admin/users")):
            assert action is Action.ADMINISTER, said
        if not said.startswith("GET") and said != "POST /account/password":
            assert action not in (Action.SEE, Action.INSPECT, Action.SCRAPE), said
        if "/admin/" in said or said.endswith("/{action}"):
            assert action in BY_SCOPE[Scope.ADMIN] - {Action.SEE}, said


def address(path: str) -> str:
    """A path that the pattern matches; nothing behind it is there, which is not the guard's concern."""
    path = path.replace("{model}", "fake/encoder").replace("{action}", "load")
    return re.sub(r"{\w+}", "x", path) + ("/login.css" if path == "/static" else "")


async def ask(http, method, path, headers) -> int:
    """The status. Sockets are opened as sockets."""
    if path.startswith("/ws/"):
        headers = {**headers, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers["Sec-WebSocket-Key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
    async with http.request(method, address(path), headers=headers, allow_redirects=False) as answer:
        return answer.status


async def walk(http, headers, actions) -> None:
    """Every route with these headers: refused exactly when the table says so."""
    for method, path in EVERY:
        said = routes.pattern(method, path)
        status = await ask(http, method, path, headers)
        if said in OPEN or routes.NEEDS[said] in actions:
            assert status not in (401, 403), (said, status)
        else:
            assert status == 403, (said, status)


@pytest.mark.parametrize("scope", list(Scope))
async def test_a_key_passes_exactly_the_routes_of_its_scope(guarded, http, scope):
    await walk(http, bearer(guarded.key("k", scope)), BY_SCOPE[scope])


@pytest.mark.parametrize("role", list(Role))
async def test_a_user_passes_exactly_the_routes_of_their_role(guarded, browser, role):
    guarded.user("ann", role)
    guarded.user("admin", Role.ADMIN)
    await log_in(browser, "ann")
    for method, path in EVERY:
        if (said := routes.pattern(method, path)) in OPEN:
            continue
        status = await ask(browser, method, path, {})
        assert (status == 403) is (routes.NEEDS[said] not in BY_ROLE[role]), (said, status)
        assert status != 401, said


async def test_nobody_passes_any_route_that_is_not_open(guarded, http):
    guarded.key("k")
    for method, path in EVERY:
        said = routes.pattern(method, path)
        status = await ask(http, method, path, {"X-Forwarded-For": "1.2.3.4"})
        if said in OPEN:
            assert status not in (401, 403) or path in ("/login", "/first-run"), (said, status)
        else:
            assert status == 401, (said, status)


async def test_below_the_base_path_the_same_holds(guarding):
    guarded = guarding(base_path="/serai")
    call, metrics = guarded.key("call"), guarded.key("metrics", Scope.METRICS)
    async with serving(guarded.engine) as url:
        async with ClientSession(url) as http:
            for prefix in ("", "/serai"):
                assert await ask(http, "GET", f"{prefix}/v1/models", {}) == 401
                assert await ask(http, "GET", f"{prefix}/v1/models", bearer(call)) == 200
                assert await ask(http, "GET", f"{prefix}/v1/models", bearer(metrics)) == 403
                assert await ask(http, "GET", f"{prefix}/metrics", bearer(metrics)) == 200
                assert await ask(http, "GET", f"{prefix}/healthz", {}) == 200
                assert await ask(http, "HEAD", f"{prefix}/v1/models", {}) == 401
                assert await ask(http, "POST", f"{prefix}/v1/models/fake/encoder/pin", bearer(call)) == 403


async def test_a_route_that_somebody_forgets_is_an_admins_only(guarded, http, monkeypatch):
    left = {said: action for said, action in routes.NEEDS.items() if said != "GET /v1/models"}
    monkeypatch.setattr(routes, "NEEDS", left)

    assert await ask(http, "GET", "/v1/models", bearer(guarded.key("call", Scope.CALL))) == 403
    assert await ask(http, "GET", "/v1/models", bearer(guarded.key("admin", Scope.ADMIN))) == 200


async def test_on_its_own_machine_without_keys_all_is_open(guarded, http):
    assert Settings().auth == "auto"
    await walk(http, {}, set(Action))
