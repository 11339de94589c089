"""Whatever the reference allows, and what it does not: every route answers in time and never blames itself.

Three requests a route; with `FUZZ_SECONDS`, others again and again for so long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode

from tests.acceptance.serving import Server
from tests.acceptance.simulated import ENCODER, READER, RERANKER, WRITER, simulated

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
TIMEOUT = 10.0
"""Seconds for one answer."""
MAY_GROW_BYTES = 64 << 20
TAKEN = settings(
    database=None,
    deadline=None,
    derandomize=not SECONDS,
    max_examples=3,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
)
MODELS = st.sampled_from([ENCODER, RERANKER, READER, WRITER])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of its own: whatever an operator may do is done to it."""
    settings = {"auth": "off", "tei_embed": ENCODER, "max_hold": "5s", "drain_limit": "1s"}
    with simulated(tmp_path_factory.mktemp("fuzzed"), **settings) as running:
        yield running


def operations(schema: Any) -> list[Any]:
    """Those of an operator last, so that the others find models that are served."""
    found = [each.ok() for each in schema.get_all_operations() if not each.ok().path.startswith("/ws/")]
    return sorted(found, key=lambda one: ("admin" in one.path, "{action}" in one.path, one.path))


def asked(server: Server, operation: Any) -> list[int]:
    """The statuses of its answers. Raises AssertionError with one that was answered badly."""
    statuses: list[int] = []
    session = requests.Session()
    modes = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

    @TAKEN
    @given(st.one_of(modes), MODELS | st.none())
    def ask(case: Any, model: str | None) -> None:
        if model is not None and "model" in (case.path_parameters or {}):
            case.path_parameters["model"] = model
        if model is not None and isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = model
        answer = case.call(base_url=server.url, session=session, timeout=TIMEOUT, allow_redirects=False)
        statuses.append(answer.status_code)
        assert answer.status_code < 500 or b"MODEL_PAUSED" in answer.content, (
            case.as_curl_command()[:2000],
            answer.status_code,
            answer.content[:500],
        )

    with session:
        ask()
    return statuses


@pytest.mark.timeout(SECONDS * 2 + 120)
def test_no_route_hangs_fails_or_keeps_memory(server: Server) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    routes = operations(schema)
    until, statuses, sizes = time.monotonic() + SECONDS, dict[str, list[int]](), list[int]()

    while not statuses or time.monotonic() < until:
        for operation in routes:
            statuses[operation.label] = asked(server, operation)
            sizes.append(server.seen.memory_info().rss)

    assert len(routes) > 80
    assert [label for label, found in statuses.items() if not found] == []
    served = [label for label, found in statuses.items() if 200 in found]
    assert len(served) > len(routes) / 3, served
    assert sizes[-1] - sizes[len(sizes) // 2] < MAY_GROW_BYTES
    server.until(lambda: server.total("serai_held_request_bytes") == 0)
    assert "Traceback" not in server.said()
