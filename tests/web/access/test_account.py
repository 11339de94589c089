"""A user's own page: a new password by whoever knows the old one, and the way out."""

from __future__ import annotations

import pytest

from engine.access.principals import Role, Scope
from tests.web.access.conftest import PASSWORD, a_browser, bearer, log_in

pytestmark = pytest.mark.anyio

NEW = "battery staple"


async def change(browser, old=PASSWORD, new=NEW, again=NEW):
    form = {"old": old, "password": new, "again": again}
    async with browser.post("/account/password", data=form, allow_redirects=False) as answer:
        return answer.status, await answer.text()


async def status(browser) -> int:
    async with browser.get("/v1/models") as answer:
        return answer.status


async def test_a_new_password_ends_every_other_session_and_not_this_one(guarded, browser, url):
    guarded.user("ann", Role.VIEWER)
    await log_in(browser, "ann")
    async with a_browser(url) as other:
        await log_in(other, "ann")
        assert (await change(browser))[0] == 303
        assert (await status(browser), await status(other)) == (200, 401)
        await log_in(other, "ann", NEW)

    assert ("user:ann", "password", "user:ann", "ok") in guarded.audit()


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"old": "wrong horse"}, "not your password"),
        ({"again": "something else"}, "twice"),
        ({"new": "short", "again": "short"}, "10 to 1024"),
    ],
)
async def test_a_password_that_cannot_be_leaves_the_old_one(guarded, browser, form, said):
    guarded.user("ann", Role.OPERATOR)
    await log_in(browser, "ann")
    got, page = await change(browser, **form)

    assert got == 400 and said in page and "You are ann, an operator." in page
    assert await status(browser) == 200
    await log_in(browser, "ann")


async def test_who_found_a_browser_open_cannot_guess_at_leisure(guarded, browser):
    guarded.user("ann", Role.VIEWER)
    await log_in(browser, "ann")

    assert [(await change(browser, old="wrong"))[0] for _ in range(5)] == [400] * 4 + [429]


async def test_a_key_has_no_password(guarded, http):
    headers = bearer(guarded.key("admin", Scope.ADMIN))
    async with http.get("/account", headers=headers) as answer:
        assert answer.status == 200 and "without" in await answer.text()
    async with http.post("/account/password", data={"old": "x"}, headers=headers) as answer:
        assert answer.status == 403
