"""What each scope and each role may do, and who may be called what."""

from __future__ import annotations

import pytest

from engine.access.principals import LOCAL, Action, Limits, Role, Scope, allowed, key, may_call, user

A = Action


@pytest.mark.parametrize(
    ("scopes", "actions"),
    [
        ([Scope.CALL], {A.SEE, A.CALL}),
        ([Scope.METRICS], {A.SCRAPE}),
        ([Scope.ADMIN], {A.SEE, A.INSPECT, A.OPERATE, A.ADMINISTER}),
        ([Scope.METRICS, Scope.CALL], {A.SEE, A.CALL, A.SCRAPE}),
    ],
)
def test_a_key_may_do_what_its_scopes_say_and_no_more(scopes, actions):
    made = key("abcd", "a key", scopes, 1.0)

    assert {action for action in Action if allowed(made, action)} == actions


def test_each_role_may_do_what_the_one_before_may_and_more():
    sets = [{a for a in Action if allowed(user("ann", role, 1.0), a)} for role in Role]

    looking = {A.SEE, A.INSPECT, A.SCRAPE}
    assert sets == [looking, looking | {A.CALL, A.OPERATE}, set(Action)]


def test_nobody_may_do_anything_and_this_machine_may_do_all():
    assert not any(allowed(None, action) for action in Action)
    assert all(allowed(LOCAL, action) for action in Action)


def test_who_is_revoked_may_do_nothing():
    gone = key("abcd", "a key", list(Scope), 1.0, revoked=2.0)

    assert not any(allowed(gone, action) for action in Action)


@pytest.mark.parametrize(
    ("globs", "model", "may"),
    [
        ((), "BAAI/bge-small-en-v1.5", True),
        (("BAAI/*",), "BAAI/bge-small-en-v1.5", True),
        (("BAAI/*",), "baai/bge-small-en-v1.5", False),
        (("BAAI/*",), "other/BAAI/x", False),
        (("a/b", "c/*"), "c/d", True),
        (("a/b",), "a/bc", False),
    ],
)
def test_a_key_is_for_the_models_that_its_globs_name(globs, model, may):
    assert may_call(key("abcd", "k", [Scope.CALL], 1.0, models=globs), model) is may


@pytest.mark.parametrize("name", ["", " a", "a\nb", "x" * 65, 'a"b', "<b>", "naïve"])
def test_a_name_that_could_not_stand_in_a_log_line_is_refused(name):
    with pytest.raises(ValueError, match="name"):
        key("abcd", name, [Scope.CALL], 1.0)
    with pytest.raises(ValueError, match="name"):
        user(name, Role.VIEWER, 1.0)


def test_a_key_without_a_scope_is_refused():
    with pytest.raises(ValueError, match="scope"):
        key("abcd", "k", [], 1.0)


def test_without_limits_there_are_none():
    assert Limits() == Limits(rate=None, burst=1, concurrency=None)
