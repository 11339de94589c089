"""The load tests of recording and replaying, in their smallest form."""

from __future__ import annotations

import pytest

from loadtests import recording, replay
from tests import weights
from tests.acceptance.asking import MINILM, RERANKER


def store() -> str:
    for model in (MINILM, RERANKER):
        weights.weights(model)
    return str(weights.test_sources().store.root)


@pytest.mark.timeout(300)
def test_what_recording_costs_is_told_of_each_kind(capsys):
    status = recording.main(["--quick", "--store", store()])

    said = capsys.readouterr().out
    assert all(f"\n{kind} " in said for kind in recording.KINDS) and "A short text takes" in said
    assert status == ("missed:" in said)


@pytest.mark.timeout(300)  # a server starts, and on a busy machine that takes its time
def test_a_real_trace_is_replayed_on_a_real_server(capsys, tmp_path):
    status = replay.main(["--quick", "--store", store(), "--output", str(tmp_path / "r")])

    said = capsys.readouterr().out
    assert MINILM in said and "send lag p50" in said
    assert (tmp_path / "r.html").exists()
    assert status == ("missed:" in said)


def test_a_recorder_that_costs_too_much_misses(capsys):
    cheap, dear = recording.Turn(100.0, 100.0), recording.Turn(140.0, 300.0)
    assert recording.report({"off": [cheap], "on": [cheap], "named": [cheap]}, 5000.0) == 0
    assert recording.report({"off": [cheap], "on": [dear], "named": [cheap]}, 5000.0) == 1
    said = capsys.readouterr().out
    assert "missed: on: 40.0 us" in said and "missed: on: 4.0% of a short text" in said
