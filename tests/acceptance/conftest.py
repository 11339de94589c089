from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.asking import MINILM, NER, PHOTOS, PII, RERANKER, WRITER
from tests.acceptance.serving import Server, serving
from tests.weights import weights

MODELS = (MINILM, RERANKER, NER, PII, WRITER, PHOTOS)


@pytest.fixture
def anyio_backend() -> str:
    """Real sockets need a real clock."""
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with room for everything, which the tests share. No test may leave it worse."""
    for model in MODELS:
        weights(model)
    with serving(tmp_path_factory.mktemp("shared"), memory="2GiB") as running:
        yield running
