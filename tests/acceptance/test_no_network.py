"""A server reaches nothing beyond its machine: not to start, not to load, not to answer, not to report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import guarded_serai
from tests.acceptance.asking import JSON, MINILM, encode
from tests.acceptance.serving import serving
from tests.weights import weights


def test_a_server_that_loads_and_answers_connects_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    weights(MINILM)
    found = tmp_path / "reached"
    monkeypatch.setenv("GUARD", str(found))
    monkeypatch.setenv("PYTHONPATH", str(Path(guarded_serai.__file__).parents[1]))
    program = (sys.executable, guarded_serai.__file__)

    with serving(tmp_path, program, devices="cpu", memory="1GiB") as server:
        path, body = encode("hello")
        assert server.http.post(path, json=body, headers=JSON).status_code == 200
        assert server.http.get("/metrics").status_code == 200

    assert not found.exists(), found.read_text("utf-8")


def test_the_guard_sees_what_reaches_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GUARD", str(tmp_path / "reached"))
    code = (
        f"import sys; sys.path.insert(0, {str(Path(guarded_serai.__file__).parents[1])!r})\n"
        "from tests.guarded_serai import guard\n"
        "import socket\n"
        "sys.addaudithook(guard)\n"
        "s = socket.socket(); s.setblocking(False)\n"
        "try: s.connect(('192.0.2.1', 9))\n"
        "except OSError: pass\n"
        "s.close()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

    assert (tmp_path / "reached").read_text("utf-8") == "socket.connect 192.0.2.1\n"
