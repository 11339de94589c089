from __future__ import annotations

from pathlib import Path

import pytest
from sqlite_utils import Database

from tests.web.conftest import Clock
from tests.web.fakes import FakeEngine
from tests.web.openai.test_batches import made


@pytest.fixture
def engine(db: Database, tmp_path: Path, clock: Clock) -> FakeEngine:
    return made(db, tmp_path, clock)
