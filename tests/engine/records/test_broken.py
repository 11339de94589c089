"""Files that are no recordings, disks that are full, servers that are killed: said clearly, nothing lost."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import anyio
import orjson
import pytest

from engine.actors.state_store import open_database
from engine.errors import InvalidInput
from engine.records import files
from engine.records.lines import Bounds, lines
from replay.recording import read_file
from replay.trace import BadTrace
from tests.engine.actors.conftest import REAL_CLOCK
from tests.engine.records.conftest import ASKED, HEADER, end, recorded_engine, written
from tests.simulation import request


def test_a_whole_file_is_read(tmp_path):
    found = read_file(written(tmp_path / "x.jsonl.gz", HEADER, ASKED, end(request=1)))
    assert len(found) == 1 and found.answers().latency.tolist() == [0.1]


BROKEN = {
    "cut off in the middle": ((HEADER, ASKED, end(request=1)), 12, "was cut off after"),
    "without its last line": ((HEADER, ASKED), 0, "was cut off after 1 rows"),
    "of another version": (({**HEADER, "serai_recording": 9}, ASKED), 0, "version 9; this server reads"),
    "of something else": (({"hello": 1}, ASKED), 0, "this is no recording"),
    "whose clock goes backwards": (
        (HEADER, ASKED, {**ASKED, "at": 0.2}, end(request=2)),
        0,
        "the clock goes backwards, from 0.5",
    ),
    "of nothing": ((HEADER, end()), 0, "holds no requests"),
    "with fewer rows than it says": ((HEADER, ASKED, end(request=2)), 0, "it says|file says"),
    "with what nobody knows": ((HEADER, {"is": "riddle", "at": 1.0}), 0, "'riddle' is nothing"),
    "without a time": ((HEADER, {"is": "request"}), 0, "needs `at`"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_file_that_is_broken_says_how(tmp_path, how):
    lines, cut, said = BROKEN[how]
    path = written(tmp_path / "x.jsonl.gz", *lines, cut=cut)
    with pytest.raises(BadTrace, match=said) as refused:
        read_file(path)
    assert str(path) in str(refused.value)


def test_what_is_no_gzip_says_so(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_text("hello")
    with pytest.raises(BadTrace, match="it is not gzip"):
        read_file(path)


def test_a_small_file_of_much_is_refused_before_it_is_held(tmp_path):
    path = written(tmp_path / "x.jsonl.gz", HEADER, *[{**ASKED, "x": "a" * 900_000}] * 20, end(request=20))
    assert path.stat().st_size < 50_000
    with pytest.raises(InvalidInput, match=r"x.jsonl.gz:\d+: a file unpacks to at most 200 times its size"):
        list(files.read(path))
    path.write_bytes(gzip.compress(orjson.dumps(HEADER) + b"\n" + b"a" * 2**24))
    with pytest.raises(InvalidInput, match=r"x.jsonl.gz:2: a line has at most 1 MiB"):
        list(files.read(path))


def test_a_line_is_never_read_beyond_its_bound():
    mib = 2**20

    def told(content: bytes) -> list[int]:
        file = io.BytesIO(content)
        try:
            found = lines(file, file, "it", Bounds(first=2 * mib, line=mib, whole=4 * mib))
            return [len(line) for _, line in found]
        finally:
            assert file.tell() <= 5 * mib + 1

    line = b"x" * (mib - 1) + b"\n"
    assert told(line * 4) == [mib] * 4
    with pytest.raises(InvalidInput, match="it:5: a file has at most 4 MiB unpacked"):
        told(line * 5)
    with pytest.raises(InvalidInput, match="it:1: a line has at most 2 MiB"):
        told(b"x" * 9 * mib)


@pytest.mark.anyio
@REAL_CLOCK
async def test_a_broken_file_changes_nothing_and_traffic_goes_on(tmp_path):
    broken = written(tmp_path / "x.jsonl.gz", HEADER, ASKED, {**ASKED, "at": 0.2}, end(request=2))
    async with recorded_engine(tmp_path) as engine:
        with pytest.raises(InvalidInput, match="clock goes backwards"):
            await engine.recordings.take_in("x", broken)
        await engine.submit(request("a", "still here"))
        await engine.recordings.start("x")  # even its name is free
        await engine.recordings.stop()


@pytest.mark.anyio
@REAL_CLOCK
async def test_a_disk_that_is_full_harms_neither_traffic_nor_what_is_stored(tmp_path):
    disk = open_database(tmp_path / "traffic.db", "normal")
    async with recorded_engine(tmp_path, traffic=disk) as engine:
        await engine.recordings.start("full")
        for number in range(5):
            await engine.submit(request("a", "stored", id=f"q{number}"))
        await engine.recordings.infos()  # all of it is on disk
        pages = disk.execute("pragma page_count").fetchone()[0]
        disk.execute(f"pragma max_page_count={pages}")
        for number in range(200):
            await engine.submit(request("a", "x " * 50, id=f"lost{number}"))
        await _until(lambda: engine.view().recorder.trouble)
        seen = engine.view().recorder
        disk.execute("pragma max_page_count=1000000")
        await engine.submit(request("a", "again", id="after"))
        await engine.recordings.stop()
        (info,) = await engine.recordings.infos()
        assert engine.view().recorder.trouble == ""
    assert "full" in seen.trouble and seen.dropped > 0
    kept = open_database(tmp_path / "traffic.db", "normal")
    names = [row["request"] for row in kept["requests"].rows]
    kept.close()
    assert names[:5] == [f"q{n}" for n in range(5)] and names[-1] == "after"
    assert info.lost >= 200 - (len(names) - 6) > 0


@pytest.mark.anyio
@REAL_CLOCK
async def test_a_clock_that_is_set_back_meanwhile_leaves_the_recording_in_order(tmp_path, monkeypatch):
    back = 0.0
    clock = SimpleNamespace(time=lambda: time.time() - back, monotonic=time.monotonic)
    monkeypatch.setattr("engine.actors.recorder.time", clock)
    async with recorded_engine(tmp_path) as engine:
        await engine.recordings.start("clock")
        await engine.submit(request("a", "before", id="before"))
        await engine.recordings.infos()  # it is on disk
        back = 3600.0
        await engine.submit(request("a", "after", id="after"))
        await engine.recordings.stop()
        await engine.recordings.export("clock", tmp_path / "clock.jsonl.gz", shareable=False)

    kept = read_file(tmp_path / "clock.jsonl.gz")
    assert kept.requests["request"].tolist() == ["before", "after"]
    assert 0 <= kept.requests["at"][0] < kept.requests["at"][1] <= kept.seconds < 600


@pytest.mark.anyio
@REAL_CLOCK
async def test_a_server_that_is_killed_loses_its_last_moment_only(tmp_path):
    """A real process, kill -9 in the middle of steady traffic."""
    process = subprocess.Popen(  # noqa: ASYNC220  (nothing of ours runs meanwhile)
        [sys.executable, "-m", "tests.engine.records.killed", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:  # one for each answered request, 20 ms apart
        if int(line.split()[0]) >= 80:
            break
    os.kill(process.pid, signal.SIGKILL)
    died = time.time()
    process.wait()
    process.stdout.close()

    async with recorded_engine(tmp_path) as engine:
        (info,) = await engine.recordings.infos()
    path = tmp_path / "killed.jsonl.gz"
    files.write(tmp_path / "traffic.db", "killed", path)
    kept = read_file(path)

    ended = kept.started + kept.requests["at"].max()
    assert info.closed == "interrupted" and info.requests == len(kept) > 20
    # Written every 250 ms; a machine that is busy with other tests gets as long again to write.
    assert died - ended < 0.25 + 0.5
    assert kept.requests["request"].tolist() == [f"q{n}" for n in range(len(kept))]  # none is missing


async def _until(condition) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.05)
