"""Where a request comes from: the socket says, and a proxy only when it is one of ours."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from aiohttp.test_utils import make_mocked_request
from aiohttp.web import Application

from engine.config import Settings
from engine.errors import Forbidden
from web.access import origin
from web.keys import ENGINE

OURS = ("10.0.0.0/24", "::1")


def asked(headers=(), peer="10.0.0.7", trusted=OURS):
    """A request as it arrives from `peer`."""
    app = Application()
    app[ENGINE] = SimpleNamespace(settings=Settings(trusted_proxies=trusted))
    made = make_mocked_request("POST", "/x", headers={"Host": "serai:8080", **dict(headers)}, app=app)
    return made.clone(remote=peer)


@pytest.mark.parametrize(
    ("said", "peer", "address"),
    [
        ("1.1.1.1", "10.0.0.7", "1.1.1.1"),
        ("9.9.9.9, 1.1.1.1", "10.0.0.7", "1.1.1.1"),
        ("9.9.9.9, 1.1.1.1, 10.0.0.8", "10.0.0.7", "1.1.1.1"),
        ("10.0.0.9, 10.0.0.8", "10.0.0.7", "10.0.0.9"),
        ("2001:db8::1", "::1", "2001:db8::1"),
        ("::ffff:1.1.1.1", "::ffff:10.0.0.7", "1.1.1.1"),
        ("made up, nonsense", "10.0.0.7", "nonsense"),
        (" , ", "10.0.0.7", "10.0.0.7"),
        ("1.1.1.1", "10.0.1.7", "10.0.1.7"),
        ("1.1.1.1", "", ""),
    ],
)
def test_the_callers_address_is_the_last_that_no_proxy_of_ours_has(said, peer, address):
    assert origin.address(asked({"X-Forwarded-For": said}, peer)) == address


def test_without_a_proxy_in_the_settings_headers_mean_nothing():
    headers = {"X-Forwarded-For": "1.1.1.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.org"}
    for request in (asked(headers, trusted=()), asked(headers, peer="192.0.2.1")):
        assert origin.address(request) == request.remote
        assert not origin.https(request)
        assert origin.place(request) == "serai:8080"

    trusted = asked(headers)
    assert origin.https(trusted) and origin.place(trusted) == "evil.org"


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({"Origin": "https://serai.example.org", "X-Forwarded-Host": "serai.example.org"}, True),
        ({"Origin": "https://serai.example.org", "X-Forwarded-Host": "evil.org, serai.example.org"}, True),
        ({"Origin": "https://evil.org", "X-Forwarded-Host": "serai.example.org"}, False),
        ({"Origin": "http://serai:8080"}, True),
        ({"Origin": "null", "Host": ""}, False),
    ],
)
def test_a_page_behind_a_proxy_is_ours_by_the_name_that_its_browser_sees(headers, passes):
    request = asked({"Cookie": "serai_session=x", **headers})
    if passes:
        origin.check_site(request)
        return
    with pytest.raises(Forbidden):
        origin.check_site(request)


@pytest.mark.parametrize(
    ("host", "peer", "headers", "local"),
    [
        ("localhost:8080", "127.0.0.1", {}, True),
        ("[::1]:8080", "::1", {}, True),
        ("127.0.0.1", "127.0.0.1", {}, True),
        ("serai.example.org", "127.0.0.1", {}, False),
        ("localhost", "10.0.0.7", {}, False),
        ("localhost", "127.0.0.1", {"X-Real-IP": "127.0.0.1"}, False),
        ("", "127.0.0.1", {}, False),
        ("[", "127.0.0.1", {}, False),
    ],
)
def test_local_is_who_asks_this_machine_on_it_and_through_nobody(host, peer, headers, local):
    assert origin.is_local(asked({"Host": host, **headers}, peer)) is local
