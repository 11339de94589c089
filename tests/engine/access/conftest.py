from __future__ import annotations

from tests.engine.actors.conftest import database  # noqa: F401
