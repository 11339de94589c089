"""Which addresses only this machine reaches."""

from __future__ import annotations

import pytest

from engine.access.access import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_what_only_this_machine_reaches(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.org", "", "127.0.0.1.nip.io"])
def test_what_others_reach(host):
    assert not is_loopback(host)
