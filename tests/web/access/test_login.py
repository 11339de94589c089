"""The way in for people, tried as a browser does and as somebody who guesses does."""

from __future__ import annotations

import logging
import re
import time
from html.parser import HTMLParser

import anyio
import pytest
from aiohttp import ClientSession, CookieJar

from engine.access.changes import Revoke
from engine.access.principals import Role
from tests.web.access.conftest import PASSWORD, log_in
from tests.web.conftest import serving
from web.access import login, sessions

pytestmark = pytest.mark.anyio

HTML = {"Accept": "text/html"}


async def post(browser, path, headers=None, **form):
    async with browser.post(path, data=form, headers=headers, allow_redirects=False) as answer:
        return answer, await answer.text()


async def test_who_is_not_known_is_sent_to_log_in_and_then_to_where_they_wanted(guarded, browser):
    guarded.user("ann", Role.VIEWER)
    async with browser.get("/metrics", headers={**HTML, "X-Forwarded-For": "x"}) as answer:
        assert answer.url.path == "/login" and answer.url.query["next"] == "/metrics"
        page = await answer.text()
    assert 'name="next" value="/metrics"' in page and 'name="token"' not in page

    answer, _ = await post(browser, "/login", name=" ANN ", password=PASSWORD, next="/metrics")
    assert (answer.status, answer.headers["Location"]) == (303, "/metrics")
    async with browser.get("/", headers=HTML) as answer:
        assert answer.status == 200 and answer.url.path == "/"


async def test_a_program_and_a_fragment_are_told_instead(guarded, browser):
    guarded.user("ann", Role.VIEWER)
    async with browser.get("/v1/models") as answer:
        assert answer.status == 401
    async with browser.get("/", headers={"HX-Request": "true"}) as answer:
        assert (answer.status, answer.headers["HX-Redirect"]) == (401, "/login")


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(guarded, browser):
    guarded.user("ann", Role.VIEWER)
    answer, _ = await post(browser, "/login", name="ann", password=PASSWORD)
    said = answer.headers["Set-Cookie"]

    assert said.startswith("serai_session=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(said.split("; "))
    assert "Secure" not in said and PASSWORD not in said


async def test_behind_a_proxy_that_speaks_https_the_cookie_is_for_https_only(guarding):
    for trusted, starts in ((("127.0.0.0/8",), "__Host-serai_session="), ((), "serai_session=")):
        guarded = guarding(trusted_proxies=trusted)
        guarded.user("ann", Role.VIEWER)
        async with serving(guarded.engine) as url, ClientSession(url) as browser:
            headers = {"X-Forwarded-Proto": "https"}
            answer, _ = await post(browser, "/login", headers, name="ann", password=PASSWORD)
            said = answer.headers["Set-Cookie"]
            assert said.startswith(starts)
            assert ("Secure" in said) is bool(trusted)


@pytest.mark.parametrize(
    "wanted",
    ["//evil.org", "https://evil.org", "/\\evil.org", "evil", "", "/a\nSet-Cookie: x", "/login?next=/login"],
)
async def test_logging_in_leads_nowhere_but_here(guarded, browser, wanted):
    guarded.user("ann", Role.VIEWER)
    answer, _ = await post(browser, "/login", name="ann", password=PASSWORD, next=wanted)

    assert (answer.status, answer.headers["Location"]) == (303, "/")


@pytest.mark.parametrize(
    "form",
    [
        {"name": "ann", "password": "wrong horse"},
        {"name": "nobody", "password": PASSWORD},
        {"name": "", "password": ""},
        {"name": "ann"},
        {"name": "gone", "password": PASSWORD},
        {"name": "<b>", "password": "\x00"},
    ],
)
async def test_a_wrong_name_and_a_wrong_password_look_alike(guarded, browser, form, caplog):
    guarded.user("ann", Role.ADMIN)
    guarded.user("gone", Role.VIEWER)
    await guarded.engine.access.change(Revoke("user:gone"), "tester")
    with caplog.at_level(logging.DEBUG):
        answer, page = await post(browser, "/login", **form)

    assert answer.status == 400 and "Set-Cookie" not in answer.headers
    assert "do not belong together" in page and "<b>" not in page
    assert "wrong horse" not in caplog.text and PASSWORD not in caplog.text


async def test_a_name_that_does_not_exist_takes_as_long_as_one_that_does(guarded, monkeypatch, browser):
    guarded.user("ann", Role.ADMIN)
    checked = []
    real = login.credentials.password_is
    monkeypatch.setattr(login.credentials, "password_is", lambda p, k: checked.append(k) or real(p, k))
    await post(browser, "/login", name="nobody", password="x")

    assert checked == [login.credentials.NOBODY]


async def test_who_guesses_must_wait_longer_and_longer(guarded, browser):
    guarded.user("ann", Role.ADMIN)
    statuses = [(await post(browser, "/login", name="ann", password="wrong"))[0].status for _ in range(4)]
    answer, page = await post(browser, "/login", name="ann", password=PASSWORD)

    assert statuses == [400] * 4
    assert answer.status == 429 and "Too many wrong passwords" in page
    assert 0 < float(answer.headers["Retry-After"]) <= 1.0
    await anyio.sleep(1.0)
    answer, _ = await post(browser, "/login", name="ann", password=PASSWORD)
    assert answer.status == 303
    answer, _ = await post(browser, "/login", name="ann", password="wrong")
    assert answer.status == 400  # being right has cleared both


async def test_many_guesses_at_once_get_no_further_than_one_after_the_other(guarded, browser):
    guarded.user("ann", Role.ADMIN)
    statuses = []

    async def guess():
        answer, _ = await post(browser, "/login", name="ann", password="wrong")
        statuses.append(answer.status)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(guess)

    assert sorted(statuses) == [400] * 4 + [429] * 16


async def test_an_address_is_what_the_trusted_proxy_says_and_nobody_else(guarding):
    for trusted, expected in ((("127.0.0.1",), 303), ((), 429)):
        guarded = guarding(trusted_proxies=trusted)
        guarded.user("ann", Role.ADMIN)
        async with serving(guarded.engine) as url, ClientSession(url) as browser:
            for number in range(5):
                far = {"X-Forwarded-For": f"10.9.9.9, 10.0.0.{number}"}
                await post(browser, "/login", far, name=f"user{number}", password="wrong")
            far = {"X-Forwarded-For": "10.0.0.77"}
            answer, _ = await post(browser, "/login", far, name="ann", password=PASSWORD)
            assert answer.status == expected


async def test_logging_out_ends_the_session_for_a_copy_of_its_cookie_too(guarded, browser, url):
    guarded.user("ann", Role.VIEWER)
    await log_in(browser, "ann")
    copied = {c.key: c.value for c in browser.cookie_jar}
    answer, _ = await post(browser, "/logout")

    assert (answer.status, answer.headers["Location"]) == (303, "/login")
    async with ClientSession(url, cookies=copied, cookie_jar=CookieJar(unsafe=True)) as thief:
        async with thief.get("/v1/models") as refused:
            assert refused.status == 401
    async with browser.get("/v1/models") as refused:
        assert refused.status == 401


async def test_a_session_brings_no_change_from_another_site(guarded, browser):
    """Browsers say where a request comes from; one with a session must say so, and say that it is ours."""
    guarded.user("ann", Role.OPERATOR)
    await log_in(browser, "ann")
    cookie = "; ".join(f"{c.key}={c.value}" for c in browser.cookie_jar)
    place = f"http://127.0.0.1:{browser._base_url.port}"
    async with ClientSession(place) as client:
        for headers, status in [
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "none"}, 403),
            ({"Origin": place}, 200),
            ({"Origin": "http://evil.org"}, 403),
            ({"Origin": "null"}, 403),
            ({}, 403),
        ]:
            path = "/v1/encode/fake/encoder"
            body = {"items": [{"text": "x"}]}
            async with client.post(path, json=body, headers={"Cookie": cookie, **headers}) as answer:
                assert answer.status == status, headers


async def test_a_cookie_that_is_used_is_renewed_now_and_then(guarded, http, engine):
    guarded.user("ann", Role.VIEWER)
    access, now = engine.access, time.time()
    old = sessions.begin(access.user("ann"), now - sessions.ROTATE - 1)
    for session, renewed in ((old, True), (sessions.begin(access.user("ann"), now), False)):
        cookie = {"Cookie": f"serai_session={sessions.signed(session, access)}"}
        async with http.get("/v1/models", headers=cookie) as answer:
            assert answer.status == 200
            assert ("Set-Cookie" in answer.headers) is renewed


async def test_a_role_that_changes_counts_at_once(guarded, browser):
    from engine.access.changes import NewRole

    guarded.user("ann", Role.ADMIN)
    guarded.user("bob", Role.OPERATOR)
    await log_in(browser, "bob")
    async with browser.post("/v1/models/fake/encoder/load") as answer:
        assert answer.status != 403
    await guarded.engine.access.change(NewRole("user:bob", Role.VIEWER), "ann")
    async with browser.post("/v1/models/fake/encoder/load") as answer:
        said = await answer.json()

    assert answer.status == 403 and "bob is a viewer; this needs an operator" in said["detail"]["message"]


@pytest.fixture
def beyond(guarding):
    return guarding(host="0.0.0.0")


async def test_the_first_user_is_made_with_the_token_once(beyond):
    token = beyond.engine.access.invitation
    async with (
        serving(beyond.engine) as url,
        ClientSession(url, cookie_jar=CookieJar(unsafe=True)) as browser,
    ):
        async with browser.get("/login") as answer:
            page = await answer.text()
        assert 'name="token"' in page and token not in page
        mine = {"name": "Ann", "password": PASSWORD}
        answer, page = await post(browser, "/first-run", token="wrong", **mine)
        assert answer.status == 400 and "not the token" in page
        answer, page = await post(browser, "/first-run", token=token, name="ann", password="short")
        assert answer.status == 400 and "10 to 1024" in page
        answer, page = await post(browser, "/first-run", token=token, name="a b", password=PASSWORD)
        assert answer.status == 400 and "name" in page
        answer, _ = await post(browser, "/first-run", token=token, **mine)
        assert answer.status == 303
        async with browser.get("/v1/admin/users", headers={"Sec-Fetch-Site": "same-origin"}) as answer:
            assert [u["role"] for u in (await answer.json())["users"]] == ["admin"]
        answer, page = await post(browser, "/first-run", {"Origin": url}, token=token, **mine)
        assert answer.status == 400 and "not the token" in page

    assert beyond.audit() == [("first-run token", "create", "user:ann", "ok")]


async def test_a_token_cannot_be_guessed_at_leisure(beyond):
    async with serving(beyond.engine) as url, ClientSession(url) as browser:
        statuses = [(await post(browser, "/first-run", token=str(n)))[0].status for n in range(6)]

    assert statuses == [400] * 4 + [429] * 2


async def test_on_its_own_machine_nobody_needs_to_log_in(guarding):
    async with serving(guarding().engine) as url, ClientSession(url) as browser:
        async with browser.get("/login", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")


async def test_a_server_with_keys_and_no_users_says_how_to_make_one(guarded, browser):
    guarded.key("bot")
    async with browser.get("/", headers=HTML) as answer:
        assert "serai users add" in await answer.text()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"{}", "application/json"),
        (b"a=" + b"x" * 20_000, "application/x-www-form-urlencoded"),
        (b"\xff\xfe", "application/x-www-form-urlencoded"),
        (b"&".join(b"a=1" for _ in range(50)), "application/x-www-form-urlencoded"),
    ],
)
async def test_what_is_no_form_is_refused(guarded, browser, data, kind):
    guarded.user("ann", Role.VIEWER)
    async with browser.post("/login", data=data, headers={"Content-Type": kind}) as answer:
        assert answer.status == 400


class Page(HTMLParser):
    """What a page has that its policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "style") and not dict(attrs).get("src"):
            self.wrong.append(tag)
        self.wrong += [name for name, _ in attrs if name.startswith("on") or name == "style"]


async def test_every_face_of_the_page_keeps_its_own_policy(guarded, guarding, browser):
    guarded.user("ann", Role.VIEWER)
    _, wrong = await post(browser, "/login", name="ann", password="x")
    async with (
        serving(guarding(host="0.0.0.0", base_path="/serai").engine) as url,
        ClientSession(url) as http,
    ):
        async with http.get("/serai/login") as answer:
            first = await answer.text()
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert re.findall(r'(?:href|action)="([^"]*)"', first) == [
            "/serai/static/icon.svg",
            "/serai/static/login.css",
            "/serai/first-run",
        ]
        async with http.get("/serai/static/login.css") as answer:
            assert answer.status == 200
    for page in (wrong, first):
        parsed = Page()
        parsed.feed(page)
        assert parsed.wrong == []


def test_one_home_counts_as_one_address():
    assert login.near("10.0.0.1") == "10.0.0.1"
    assert login.near("2001:db8:1:2:3:4:5:6") == login.near("2001:db8:1:2::1") == "2001:db8:1:2::/64"
    assert login.near("2001:db8::1") == login.near("2001:db8::9:8:7") != login.near("2001:db8:0:1::1")
    assert login.near("") == ""
