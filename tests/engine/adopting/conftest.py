"""A hub's cache of the test's own."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """As HF_HUB_CACHE would name it."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"
