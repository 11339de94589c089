"""The published native client, as it is, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from anyio import to_thread
from sie_sdk import SIEClient

T = TypeVar("T")
MODEL = "fake/encoder"


async def native(url: str, work: Callable[[SIEClient], T], secret: str | None = None) -> T:
    def drive() -> T:
        with SIEClient(url, api_key=secret) as client:
            return work(client)

    return await to_thread.run_sync(drive)


def run(client: SIEClient, **asked: Any) -> tuple[Any, Any]:
    """The job when it has ended, and its results."""
    job = client.jobs.submit(**{"model": MODEL, **asked})
    assert (job["object"], job["state"]) == ("job", "queued")
    ended = client.jobs.wait(job["id"], timeout_s=20, poll_s=0.02)
    return ended, client.jobs.results(job["id"])
