"""What a full disk and a crash leave of a file of results."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from engine.batches.folder import Folder


def test_a_group_that_does_not_fit_leaves_nothing_and_goes_in_later(tmp_path: Path, monkeypatch):
    results, write, calls = Folder(tmp_path).results("out"), os.pwrite, []
    results.append([b"one"])

    def nearly_full(file: int, data: bytes, at: int) -> int:
        calls.append(at)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:3], at)

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", nearly_full)
        with pytest.raises(OSError, match="No space"):
            results.append([b"two", b"three"])
    assert (tmp_path / "out").read_bytes() == b"one\n" and len(calls) == 2

    results.append([b"two", b"three"])
    results.close()
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\nthree\n"


def test_a_line_that_was_cut_is_taken_off(tmp_path: Path):
    (tmp_path / "out").write_bytes(b"one\ntw")

    results = Folder(tmp_path).results("out")
    results.append([b"two"])

    assert list(results.lines()) == [b"one\n", b"two\n"]
    results.close()
