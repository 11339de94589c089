"""Photographs for tests: those that the scikit-image wheel carries, found without importing it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest


def photo(name: str) -> bytes:
    """A PNG: chelsea (a cat), coffee, astronaut, motorcycle_left, page. Skipped where there is no wheel."""
    try:
        return Path(str(distribution("scikit-image").locate_file(f"skimage/data/{name}.png"))).read_bytes()
    except (PackageNotFoundError, FileNotFoundError):
        pytest.skip("scikit-image, which carries the photographs, is not installed")
