"""`serai plan`, on a recording that the actors made in virtual time."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from replay.trace import BadTrace
from tests.replay.twin.recordings import recording_database
from web.cli import serai


@pytest.fixture(scope="module")
def state(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    shutil.copy(recording_database(), folder / "traffic.db")
    return folder


def run(state: Path, *arguments: str) -> Result:
    return CliRunner().invoke(serai, ["plan", *arguments, "--state-dir", str(state)])


def test_a_what_if_tells_each_model_and_what_fails(state):
    done = run(state, "whatif", "made", "--vram", "2GiB", "--pin", "m3", "--json")

    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["change"] == "--vram 2.0GiB --pin m3"
    assert told["from"]["trace"] == "made" and told["from"]["seed"] == 0 and len(told["from"]["curves"]) == 12
    assert told["from"]["badge"] == "never validated"
    after = {d["after"]["unit"]: d["loads_after"] for d in told["comparison"]["differences"]}
    assert after["m3"] == 0 and set(after) == {"m0", "m1", "m2", "m3", "m4", "g"}
    assert [price["unit"] for price in told["comparison"]["prices"]] == ["m3"]
    assert told["most"]["method"] == "dup"


def test_where_nothing_is_answered_no_scale_holds(state):
    done = run(state, "whatif", "made", "--vram", "1MiB")
    assert done.exit_code == 0, done.output
    assert "At the recorded load nothing is answered of" in done.output
    assert "so targets hold at no scale" in done.output and "Targets hold up to" not in done.output
    assert json.loads(run(state, "whatif", "made", "--vram", "1MiB", "--json").stdout)["most"] is None


def test_a_model_that_no_snapshot_describes_is_left_out_and_that_is_said(state, tmp_path):
    shutil.copy(state / "traffic.db", tmp_path)
    with closing(sqlite3.connect(tmp_path / "traffic.db")) as db, db:
        snapshot = json.loads(db.execute("select snapshot from recordings").fetchone()[0])
        snapshot["models"] = [model for model in snapshot["models"] if model["id"] != "m3"]
        db.execute("update recordings set snapshot = ?", [json.dumps(snapshot)])

    done = run(tmp_path, "whatif", "made", "--json")

    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert any("requests are left out" in n and n.endswith(": m3") for n in told["from"]["notes"])
    assert {d["after"]["unit"] for d in told["comparison"]["differences"]} == {"m0", "m1", "m2", "m4", "g"}


def test_wrong_requests_are_no_traffic(state, tmp_path):
    shutil.copy(state / "traffic.db", tmp_path)
    with closing(sqlite3.connect(tmp_path / "traffic.db")) as db, db:
        db.execute("update requests set outcome = 'INVALID_INPUT' where rowid % 10 = 0")
        (wrong,) = db.execute("select count(*) from requests where outcome = 'INVALID_INPUT'").fetchone()

    told = json.loads(run(tmp_path, "whatif", "made", "--json").stdout)

    assert wrong > 50 and told["from"]["requests"] == 1000 - wrong
    assert f"{wrong} requests that no server could answer are left out" in told["from"]["notes"]


def test_a_what_if_is_shown_as_a_table(state):
    done = run(state, "whatif", "made", "--speed", "2")
    assert done.exit_code == 0, done.output
    assert "Against the recorded server: --speed 2" in done.output
    assert "m0, " in done.output and "curves" in done.output and "extrapolated" in done.output


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> str:
    """A trace of 100 requests in 25 s."""
    path = tmp_path_factory.mktemp("traces") / "own.csv.gz"
    with gzip.open(path, "wt") as file:
        rows = csv.writer(file)
        rows.writerow(["arrived_at", "num_prefill_tokens", "num_decode_tokens"])
        rows.writerows([[n / 4, 20, 0] for n in range(100)])
    return str(path)


def test_a_trace_needs_a_server_and_models_that_it_has(state, own):
    alone = run(state, "whatif", own)
    assert alone.exit_code == 1 and "--server" in alone.output
    unknown = run(state, "whatif", own, "--server", "made")
    assert unknown.exit_code == 1 and "--as own=MODEL" in unknown.output
    known = run(state, "whatif", own, "--server", "made", "--as", "own=m1", "--json")
    assert known.exit_code == 0, known.output
    (difference,) = json.loads(known.stdout)["comparison"]["differences"]
    assert difference["after"]["unit"] == "m1" and difference["after"]["requests"] == 100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["whatif", "nothing"], "nothing"),
        (["whatif", "made", "--pin", "zzz"], "saw nothing of zzz"),
        (["whatif", "made", "--vram", "lots"], "lots"),
        (["whatif", "made", "--add-model", "n=m1"], "NAME=like:MODEL,rate=PER_SECOND"),
        (["whatif", "made", "--traffic", "0x"], "as 2x"),
        (["whatif", "made", "--pin", "m1", "--unpin", "m0,m1"], "both name m1"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(state, arguments, said):
    done = run(state, *arguments)
    assert done.exit_code in (1, 2) and said in done.output
    assert not isinstance(done.exception, BadTrace)


@pytest.mark.parametrize(
    ("command", "option", "said"),
    [
        ("whatif", "--headroom", "nan"),
        ("whatif", "--window", "nan"),
        ("whatif", "--speed", "nan"),
        ("whatif", "--speed", "1e6"),
        ("whatif", "--speed", "1e-300"),
        ("whatif", "--traffic", "1e9x"),
        ("whatif", "--traffic", "nan"),
        ("whatif", "--add-model", "n=like:m1,rate=nan"),
        ("whatif", "--add-model", "n=like:m1,rate=1e9"),
        ("capacity", "--size-scale", "1e300"),
        ("capacity", "--hours", "0"),
        ("capacity", "--hours", "-1"),
        ("capacity", "--hours", "nan"),
        ("capacity", "--seed", "-1"),
        ("validate", "--minutes", "0"),
        ("validate", "--minutes", "-1"),
        ("validate", "--minutes", "nan"),
        ("size", "--price", "nan"),
        ("size", "--price", "inf"),
        ("size", "--redundancy", "nan"),
        ("study", "--price", "nan"),
    ],
)
def test_a_number_out_of_range_is_a_usage_error(state, command, option, said):
    done = run(state, command, "made", option, said)
    assert done.exit_code == 2 and option in done.output, done.output


def test_models_that_the_catalogue_here_lacks_are_named_before_anything_runs(state):
    done = run(state, "validate", "made", "--minutes", "0.01")

    assert done.exit_code == 1 and "does not describe" in done.output, done.output
    assert "m1" in done.output and "SERAI_CATALOG" in done.output and "Did you mean" not in done.output


def test_what_needs_no_pin_is_recommended_none(state, own):
    done = run(state, "pins", own, "--server", "made", "--as", "own=m1", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["pins"] == [] and told["from"]["requests"] == 100


def test_the_smallest_cards_are_found_for_a_trace(state, own):
    done = run(state, "size", own, "--server", "made", "--as", "own=m1", "--json")
    assert done.exit_code == 0, done.output
    fits = json.loads(done.stdout)["fits"]
    assert [fit["cards"] for fit in fits] == [1, 2]
    assert fits[0]["memory_bytes"] * 0.8 > 107 * 2**20
