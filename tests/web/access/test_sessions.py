"""Sessions: signed, bounded in time, ended by whoever has the right, and useless to anybody else."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.access.changes import NewPassword, Revoke
from engine.access.principals import Role
from web.access import sessions
from web.access.sessions import IDLE, LONGEST, ROTATE

pytestmark = pytest.mark.anyio


@pytest.fixture
def access(guarded):
    guarded.user("ann", Role.ADMIN)
    guarded.user("bob", Role.VIEWER)
    return guarded.engine.access


def begin(access, name="ann", now=1000.0):
    return sessions.begin(access.user(name), now)


def test_a_session_is_its_users_until_it_was_idle_too_long(access):
    value = sessions.signed(begin(access), access)

    session, user = sessions.read(value, access, 1000.0 + IDLE - 1)
    assert (user.name, session.began, session.seen) == ("ann", 1000.0, 1000.0)
    assert sessions.read(value, access, 1000.0 + IDLE) is None


def test_a_session_that_is_used_goes_on_but_not_for_ever(access):
    session, now = begin(access), 1000.0
    while (read := sessions.read(sessions.signed(session, access), access, now)) is not None:
        assert now < 1000.0 + LONGEST
        session = sessions.renewed(read[0], now) or session
        now += IDLE / 2

    assert now - 1000.0 >= LONGEST


def test_a_cookie_is_replaced_now_and_then_and_not_each_time(access):
    session = begin(access)

    assert sessions.renewed(session, 1000.0 + ROTATE - 1) is None
    fresh = sessions.renewed(session, 1000.0 + ROTATE)
    assert (fresh.id, fresh.began, fresh.seen) == (session.id, 1000.0, 1000.0 + ROTATE)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_cookie_with_any_character_changed_is_nobodys(access, data):
    value = sessions.signed(begin(access), access)
    at = data.draw(st.integers(0, len(value) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda c: c != value[at]))

    assert sessions.read(value[:at] + other + value[at + 1 :], access, 1001.0) is None


@given(st.text(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_else_is_nobodys(access, text):
    assert sessions.read(text, access, 1001.0) is None


def test_the_signature_of_one_user_does_not_make_another(access):
    _, _, signature = sessions.signed(begin(access, "bob"), access).partition(".")
    body = urlsafe_b64encode(b"x:1000:1000:ann").decode().rstrip("=")

    assert sessions.read(f"{body}.{signature}", access, 1001.0) is None


async def test_a_new_password_and_a_removal_end_every_session(access):
    ann, bob = (sessions.signed(begin(access, name), access) for name in ("ann", "bob"))
    await access.change(NewPassword("user:ann", "scrypt$4$8$1$YQ==$YQ=="), "tester")
    await access.change(Revoke("user:bob"), "tester")

    assert sessions.read(ann, access, 1001.0) is None
    assert sessions.read(bob, access, 1001.0) is None


async def test_a_session_that_was_left_stays_left_though_its_cookie_was_copied(access, guarded):
    session = begin(access)
    value = sessions.signed(session, access)
    await access.end_session(session.id, 1e12)

    assert sessions.read(value, access, 1001.0) is None
    assert sessions.read(sessions.signed(begin(access), access), access, 1001.0)


def test_another_servers_cookie_is_nobodys_here(access, guarding):
    other = guarding()
    other.user("ann", Role.ADMIN)
    value = sessions.signed(begin(other.engine.access), other.engine.access)

    assert sessions.read(value, access, 1001.0) is None
