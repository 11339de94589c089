"""A directory for one request, which nobody else may read and which is gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread


@asynccontextmanager
async def scratch() -> AsyncIterator[Path]:
    """Made at once, so that a request that is cancelled meanwhile leaves none behind."""
    folder = tempfile.TemporaryDirectory(prefix="serai-", ignore_cleanup_errors=True)
    try:
        yield Path(folder.name)
    finally:
        try:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(folder.cleanup)  # a large file takes its time
        finally:
            folder.cleanup()  # the server cancels without regard to shields when it stops
