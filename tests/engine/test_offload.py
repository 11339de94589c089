from __future__ import annotations

import pytest

from engine.offload import Threads

pytestmark = pytest.mark.anyio


class Panic(BaseException):
    """What a library in Rust raises when it gives up."""


@pytest.fixture
def anyio_backend():
    return "asyncio"  # threads live in real time


async def test_a_panic_beside_the_loop_is_an_error_like_another():
    def give_up() -> None:
        raise Panic("stack overflow")

    with pytest.raises(RuntimeError, match="Panic: stack overflow"):
        await Threads(1)(give_up)
