"""Two models that fit only one at a time take turns, and nothing adds up."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from tests.acceptance.asking import JSON, MINILM, PII, encode, extract, vectors
from tests.acceptance.serving import Server, serving
from tests.weights import weights

pytestmark = pytest.mark.alone

TURNS = 200
WARM_UP = 20
SMALLER = 70 * 2**20
BUDGET = 154 * 2**20
"""86 MiB of MiniLM with 64 MiB for its batches, or the 70 MiB of rampart: never both."""

CALLS = {
    MINILM: encode("a parcel for the harbour"),
    PII: extract("Call Jane Miller on 555-0142.", model=PII),
}


@pytest.fixture
def tight(tmp_path: Path):
    for model in CALLS:
        weights(model)
    with serving(tmp_path, memory=BUDGET, headroom=0, min_residency=0) as server:
        yield server


def answered(server: Server, model: str) -> dict:
    path, body = CALLS[model]
    answer = server.http.post(path, json=body, headers=JSON)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.timeout(400)  # 220 loads
def test_models_that_fit_only_one_at_a_time_alternate_without_a_leak(tight: Server):
    order = [MINILM, PII]
    first = {model: answered(tight, model) for model in order}
    (resident,) = tight.model(PII)["residencies"]
    for turn in range(WARM_UP):
        answered(tight, order[turn % 2])
    held = ledger(tight)
    loads = sum(tight.changes(model, "loaded") for model in order)

    sizes, answers = [], []
    for turn in range(TURNS):
        answers.append(answered(tight, order[turn % 2]))
        if turn % 2:  # the same model is resident at each look
            sizes.append(tight.seen.memory_info().rss)

    assert len(answers) == TURNS
    for turn, answer in enumerate(answers):
        if turn % 2:
            assert answer["items"] == first[PII]["items"]
        else:
            assert abs(vectors(answer) - vectors(first[MINILM])).max() < 1e-5
    assert sum(tight.changes(model, "loaded") for model in order) - loads == TURNS
    assert ledger(tight) == held
    assert held["weights"] == resident["weights_bytes"] == tight.total("serai_resident_bytes")
    assert held["weights"] == sum(held.values()), "no batch runs, and only one model is there"
    before, after = median(sizes[:5]), median(sizes[-5:])
    # allocators keep what is in pieces, in steps of some tens of MiB; a hundredth of a model
    # left behind at each of these loads would be twice what is allowed
    assert after - before < SMALLER, f"RSS went from {before} to {after}"


def ledger(server: Server) -> dict[str, int]:
    """Bytes on each line of the ledger."""
    lines = ("context", "weights", "workspace", "kv", "foreign")
    return {line: int(server.total("serai_device_held_bytes", line=line)) for line in lines}
