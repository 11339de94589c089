"""Keys and users over HTTP: made, listed, ended, audited; their secrets shown once or never."""

from __future__ import annotations

import pytest

from engine.access.principals import Role, Scope
from tests.web.access.conftest import KEPT, PASSWORD, bearer, log_in

pytestmark = pytest.mark.anyio

KEYS = "/v1/admin/keys"
USERS = "/v1/admin/users"


@pytest.fixture
def admin(guarded):
    return bearer(guarded.key("admin", Scope.ADMIN))


async def ask(http, method, path, headers, body=None):
    async with http.request(method, path, json=body, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_a_key_is_made_shown_once_used_listed_and_revoked(http, guarded, admin):
    asked = {
        "name": "CI bot",
        "scopes": ["metrics", "call"],
        "class": "background",
        "models": ["fake/*"],
        "rate": 5,
        "concurrency": 2,
        "reason": "for the pipeline",
    }
    status, made = await ask(http, "POST", KEYS, admin, asked)
    secret = made.pop("key")
    assert status == 201
    expected = {
        "name": "CI bot",
        "scopes": ["call", "metrics"],
        "class": "background",
        "models": ["fake/*"],
        "rate": 5.0,
        "burst": 5,
        "concurrency": 2,
        "last_used": None,
        "revoked": None,
    }
    assert {k: v for k, v in made.items() if k not in ("id", "created")} == expected
    body = {"items": [{"text": "x"}]}
    async with http.post("/v1/encode/fake/encoder", json=body, headers=bearer(secret)) as answer:
        assert answer.status == 200

    status, listed = await ask(http, "GET", KEYS, admin)
    assert [key["name"] for key in listed["keys"]] == ["admin", "CI bot"]
    assert listed["keys"][1]["last_used"] > 1e9
    assert listed["keys"][1]["used"] == {
        "requests": {},
        "cost": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "device_seconds": 0.0,
    }
    assert secret not in str(listed)

    status, gone = await ask(http, "DELETE", f"{KEYS}/{made['id']}?reason=done", admin)
    assert status == 200 and gone["revoked"] > 1e9
    async with http.post("/v1/encode/fake/encoder", json=body, headers=bearer(secret)) as answer:
        assert answer.status == 401
    status, said = await ask(http, "DELETE", f"{KEYS}/CI bot", admin)
    assert (status, said["detail"]["code"]) == (404, "NOT_FOUND")


async def test_who_did_what_is_in_the_audit_and_no_secret_is(http, guarded, admin):
    _, made = await ask(http, "POST", KEYS, admin, {"name": "bot", "reason": "why not"})
    await ask(http, "POST", USERS, admin, {"name": "ann", "password": PASSWORD, "role": "admin"})
    await ask(http, "DELETE", f"{KEYS}/bot?reason=leaked", admin)
    rows = [tuple(row.values()) for row in guarded.db["audit"].rows][1:]

    who = f"key:{admin['Authorization'][13:21]}"
    assert [(r[2], r[3], r[4], r[5], r[6]) for r in rows] == [
        (who, "create", f"key:{made['id']}", "why not", "ok"),
        (who, "create", "user:ann", "", "ok"),
        (who, "revoke", f"key:{made['id']}", "leaked", "ok"),
    ]
    assert made["key"] not in str(rows) and PASSWORD not in str(rows) and "scrypt" not in str(rows)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x", "scopes": []}, "scope"),
        ({"name": "x", "scopes": ["root"]}, "scopes"),
        ({"name": "x", "class": "urgent"}, "class"),
        ({"name": "x", "rate": 0}, "rate"),
        ({"name": "x", "rate": -1}, "rate"),
        ({"name": "x", "concurrency": 0}, "concurrency"),
        ({"name": "x", "burst": 1.5}, "burst"),
        ({"name": "x", "models": [""]}, "models"),
        ({"name": "x", "scope": ["call"]}, "scope"),
        ({"name": "admin"}, "already"),
        ([], "map"),
    ],
)
async def test_a_key_that_cannot_be_is_refused_with_the_reason(http, guarded, admin, body, said):
    status, answer = await ask(http, "POST", KEYS, admin, body)

    assert (status, answer["detail"]["code"]) == (400, "INVALID_INPUT")
    assert said in answer["detail"]["message"]
    assert len(guarded.audit()) == 1


async def test_a_user_is_added_given_another_role_and_password_and_removed(http, browser, guarded, admin):
    guarded.user("boss", Role.ADMIN)
    status, made = await ask(http, "POST", USERS, admin, {"name": "Ann", "password": PASSWORD})
    assert (status, made["name"], made["role"], made["removed"]) == (201, "ann", "viewer", None)
    await log_in(browser, "ann")
    status, changed = await ask(http, "POST", f"{USERS}/ann/role", admin, {"role": "operator"})
    assert (status, changed["role"]) == (200, "operator")
    async with browser.get("/v1/models") as answer:
        assert answer.status == 200
    status, _ = await ask(http, "POST", f"{USERS}/ann/password", admin, {"password": "battery staple"})
    async with browser.get("/v1/models") as answer:
        assert (status, answer.status) == (200, 401)
    await log_in(browser, "ann", "battery staple")
    status, gone = await ask(http, "DELETE", f"{USERS}/ann", admin)
    async with browser.get("/v1/models") as answer:
        assert (status, answer.status) == (200, 401)
    status, listed = await ask(http, "GET", USERS, admin)
    assert [user["name"] for user in listed["users"]] == ["boss", "ann"]
    assert gone["removed"] and KEPT not in str(listed) and "scrypt" not in str(listed)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", USERS, {"name": "ann", "password": "short"}, 400, "10 to 1024"),
        ("POST", USERS, {"name": "a b", "password": PASSWORD}, 400, "name"),
        ("POST", USERS, {"name": "ann", "password": PASSWORD, "role": "god"}, 400, "role"),
        ("POST", USERS, {"name": "boss", "password": PASSWORD}, 400, "already"),
        ("POST", f"{USERS}/nobody/role", {"role": "admin"}, 404, "no user"),
        ("POST", f"{USERS}/nobody/password", {"password": PASSWORD}, 404, "no user"),
        ("DELETE", f"{USERS}/nobody", None, 404, "no user"),
        ("DELETE", f"{KEYS}/nobody", None, 404, "no key"),
        ("DELETE", f"{USERS}/boss", None, 400, "only admin"),
        ("POST", f"{USERS}/boss/role", {"role": "viewer"}, 400, "only admin"),
    ],
)
async def test_what_cannot_be_done_to_a_user_is_said(http, guarded, admin, method, path, body, status, said):
    guarded.user("boss", Role.ADMIN)
    before = guarded.audit()
    got, answer = await ask(http, method, path, admin, body)

    assert got == status and said in answer["detail"]["message"]
    assert guarded.audit() == before


async def test_the_first_key_closes_a_server_that_was_open(http, guarded):
    status, made = await ask(http, "POST", KEYS, {}, {"name": "bot", "scopes": ["admin", "call"]})
    assert status == 201
    assert guarded.audit() == [("operator", "create", f"key:{made['id']}", "ok")]

    assert (await ask(http, "GET", "/v1/models", {}))[0] == 401
    assert (await ask(http, "GET", "/v1/models", bearer(made["key"])))[0] == 200
    await ask(http, "DELETE", f"{KEYS}/bot", bearer(made["key"]))
    assert (await ask(http, "GET", "/v1/models", {}))[0] == 401
