from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests import compared as comparisons

Compared = Callable[..., None]


@pytest.fixture
def compared(record_property: Callable[[str, Any], None]) -> Compared:
    """Tells docs/models.md what a comparison came to; its arguments are those of `tests.compared.line`."""

    def tell(*args: Any, **more: Any) -> None:
        record_property(comparisons.FIXTURE, comparisons.line(*args, **more))

    return tell


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As a slot runs models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
