"""What this process may use of its host: processors and memory, control groups included."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import psutil


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Bytes that this process could still take, on the host and within its control groups."""
    available = psutil.virtual_memory().available
    limit = memory_limit()
    if limit is None:
        return available
    return max(0, min(available, limit - psutil.Process().memory_info().rss))


def total_memory() -> int:
    """Bytes that this process could have at the most: the host's, or what its control groups allow."""
    total = psutil.virtual_memory().total
    return min(total, memory_limit() or total)


def core_quota() -> float:
    """Cores that this process may use: its affinity, and what its control groups allow."""
    count = float(cores())
    for folder in _control_groups():
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdecimal():
            count = min(count, int(quota) / int(period))
    return count


def memory_limit() -> int | None:
    """The smallest limit of the control groups that this process is in, in bytes."""
    limits = [_read(folder / "memory.max") for folder in _control_groups()]
    limits.append(_read(Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")))
    found = [int(limit) for limit in limits if limit.isdecimal()]
    return min(found) if found else None


def _control_groups() -> Iterator[Path]:
    """This process's group, version 2, and those around it."""
    root = Path("/sys/fs/cgroup")
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::/"):
            folder = root / line.removeprefix("0::/")
            yield from (place for place in (folder, *folder.parents) if place.is_relative_to(root))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def trim() -> None:
    """Let the C library give freed pages back to the system; nothing where it is not glibc."""
    if malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        malloc_trim(0)
