"""A server beyond its own machine asks who calls, or does not start."""

from __future__ import annotations

import pytest

from engine.access import rows
from engine.access.changes import Add, Revoke
from engine.access.principals import Scope, key
from engine.actors import state_store
from engine.config import SettingsError, load
from web.listening import bind, url


def settings(tmp_path, **values):
    return load({"port": 0, "state_dir": tmp_path, **values}, environ={})


@pytest.fixture
def with_a_key(tmp_path):
    db = state_store.open_database(tmp_path / "state.db", "normal")
    state_store.migrations.apply(db)
    rows.migrations.apply(db)
    with db.atomic():
        rows.change(db, Add(key("abcd", "bot", [Scope.CALL], 1.0), "h"), "tester")
    yield db
    db.close()


def test_without_keys_it_does_not_start_and_says_what_to_do(tmp_path):
    with pytest.raises(SettingsError, match=r"command line: host: 0\.0\.0\.0 .*`serai keys create NAME`"):
        bind(settings(tmp_path, host="0.0.0.0"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_with_a_key_it_listens_anywhere(tmp_path, with_a_key, host):
    bind(settings(tmp_path, host=host)).close()


def test_a_key_that_was_revoked_does_not_open_it_again(tmp_path, with_a_key):
    with with_a_key.atomic():
        rows.change(with_a_key, Revoke("key:abcd"), "tester")

    bind(settings(tmp_path, host="0.0.0.0")).close()


def test_with_keys_required_it_listens_anywhere_and_lets_nobody_in_yet(tmp_path):
    chosen = settings(tmp_path, host="0.0.0.0", auth="keys")
    with bind(chosen) as listener:
        assert url(listener, chosen).startswith("http://127.0.0.1:")


def test_with_asking_turned_off_it_listens_on_loopback_only(tmp_path, with_a_key):
    bind(settings(tmp_path, auth="off")).close()
    allowed = {"host": "0.0.0.0", "auth": "off", "allowed_hosts": "serai.example.org"}
    with pytest.raises(SettingsError, match="command line: auth: off lets everybody in"):
        bind(settings(tmp_path, **allowed))


@pytest.mark.parametrize("auth", ["none", "", "Keys", "token", "false"])
def test_a_mode_that_is_none_does_not_start(tmp_path, auth):
    with pytest.raises(SettingsError, match="command line: auth: "):
        settings(tmp_path, auth=auth)


@pytest.mark.parametrize("proxies", ["proxy.local", "10.0.0.1/33", "10.0.0.5/24"])
def test_a_proxy_is_an_address_or_a_network(tmp_path, proxies):
    with pytest.raises(SettingsError, match=r"trusted_proxies: .*no address or network"):
        settings(tmp_path, trusted_proxies=proxies)
