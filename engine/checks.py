"""What a setting may be, beside its kind: names of devices, paths, addresses, least sizes."""

from __future__ import annotations

from ipaddress import ip_network
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engine.quantities import about, as_size

MiB = 2**20

LEAST_MEMORY = 64 * MiB
"""Bytes; less holds no model and its work."""


def devices(value: str) -> str:
    names = [name.strip() for name in value.split(",")]
    for name in names:
        kind, _, which = name.partition(":")
        good = {"auto": not which, "cpu": not which, "cuda": not which or which.isdecimal()}
        if not good.get(kind, kind == "simulated" and bool(which)):
            raise ValueError(f"{name!r} is no device; there are auto, cpu, cuda:N and simulated:NAME")
    if len(set(names)) < len(names):
        raise ValueError("a device is named twice")
    return ",".join(names)


def base_path(value: str) -> str:
    if value and (not value.startswith("/") or value.endswith("/") or set(value) & set("{}?#% ")):
        raise ValueError("write it plainly, with a leading slash and no trailing one: /serai")
    return value


def memory(value: int | None) -> int | None:
    """A bare number is bytes, and whoever writes 2 means something else."""
    if value is not None and value < LEAST_MEMORY:
        meant = f"; did you mean {value}GiB?" if 0 < value < 1024 else ""
        raise ValueError(f"{about(value)} is less than {as_size(LEAST_MEMORY)}, which holds no model{meant}")
    return value


def networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        try:
            ip_network(name)
        except ValueError:
            raise ValueError(
                f"{name!r} is no address or network; write it as 10.0.0.5 or 10.0.0.0/24"
            ) from None
    return value


def url(value: str | None) -> str | None:
    if value and not value.startswith(("http://", "https://")):
        raise ValueError("expected a URL that starts with https:// or http://")
    return value.rstrip("/") if value else None


def zone(value: str | None) -> str | None:
    """A name that the system's time zone database knows."""
    if value:
        try:
            ZoneInfo(value)
        except (ValueError, OSError, ZoneInfoNotFoundError):
            raise ValueError(f"{value!r} is no time zone; write it as Europe/Paris") from None
    return value or None
