"""Where a request comes from. What a proxy says of it counts only when that proxy is in the settings."""

from __future__ import annotations

import ipaddress

from aiohttp import hdrs, web

from engine.access.access import is_loopback
from engine.errors import Forbidden
from web.access import sessions
from web.keys import ENGINE

FORWARDED = ("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", hdrs.FORWARDED, "X-Real-IP")


def address(request: web.Request) -> str:
    """The caller's own address; empty when the system does not say."""
    peer = _peer(request)
    if not _trusted(request, peer):
        return peer
    # The nearest proxy writes last. Whatever stands before the first that we do not know may be made up.
    for said in reversed(request.headers.get("X-Forwarded-For", "").split(",")):
        if not (name := _plain(said.strip())):
            continue
        if not _trusted(request, name):
            return name
        peer = name
    return peer


def https(request: web.Request) -> bool:
    """Whether the caller's browser sees a secure address."""
    return _told(request, "X-Forwarded-Proto", request.scheme) == "https"


def place(request: web.Request) -> str:
    """`host:port` as the caller's browser sees it."""
    return _told(request, "X-Forwarded-Host", request.headers.get(hdrs.HOST, "")).lower()


def is_local(request: web.Request) -> bool:
    """Whether somebody on this machine asks this machine, with no proxy in between."""
    if any(name in request.headers for name in FORWARDED):
        return False
    host = request.headers.get(hdrs.HOST, "")
    name = host.rpartition("]")[0].lstrip("[") if "]" in host else host.partition(":")[0]
    return is_loopback(_peer(request)) and is_loopback(name)


def check_site(request: web.Request) -> None:
    """Raises Forbidden when a browser sends this from another site's page.

    Browsers say where a request comes from; clients that are no browsers say nothing, and pass, unless
    they bring a session: that only a browser does, so it must say.
    """
    session = sessions.of(request) is not None
    site = request.headers.get("Sec-Fetch-Site")
    if site == "same-origin" or (site == "none" and not session):
        return
    origin = request.headers.get(hdrs.ORIGIN)
    if site is None and (not session if origin is None else _place(origin) == place(request)):
        return
    raise Forbidden("A browser sent this from another site; only this server's own pages may.")


def _place(origin: str) -> str:
    """`host:port` of an origin; nothing for `null` and the like."""
    return origin.partition("://")[2].lower() or "?"


def _peer(request: web.Request) -> str:
    return _plain((request.remote or "").partition("%")[0])


def _plain(name: str) -> str:
    """An address as it is compared: one of IPv4 that is written in IPv6 is one of IPv4."""
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return name[:64]
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def _told(request: web.Request, header: str, otherwise: str) -> str:
    """What the nearest proxy says, when it is one of ours."""
    if not _trusted(request, _peer(request)):
        return otherwise
    return request.headers.get(header, otherwise).rpartition(",")[2].strip()


def _trusted(request: web.Request, name: str) -> bool:
    networks = request.app[ENGINE].settings.trusted_proxies
    if not networks:
        return False
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(network) for network in networks)
