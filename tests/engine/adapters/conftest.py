from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests import compared as comparisons

Compared = Callable[..., None]


@pytest.fixture
def compared(record_property: Callable[[str, Any], None]) -> Compared:
    """Tells docs/models.md what a comparison came to; its arguments are those of `tests.compared.line`."""

    def tell(*args: Any, **more: Any) -> None:
        record_property(comparisons.FIXTURE, comparisons.line(*args, **more))

    return tell
