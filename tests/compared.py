"""Compares families with the library that defines them, and prints one line of JSON for each model.

`python -m tests.compared > docs/compared.jsonl`. Real weights are those of the starter pack, where they are
here; the others are tiny random ones, of the family's own configuration class. All in float32 on the CPU.
"""

from __future__ import annotations

import datetime
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as tf
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SentenceTransformer

from engine import catalog
from engine.adapters.family import family
from engine.entry import ModelSpec, Source
from engine.requests import EncodeOptions, ExtractOptions, Item, ScoreOptions, Task
from tests import weights
from tests.engine.adapters import tiny_texts

Rows = list[NDArray[np.float32]]
FLOAT32 = {"dtype": torch.float32}
QUERY = "w1 w2 w3"
REAL = {
    "sentence-transformers/all-MiniLM-L6-v2",
    "BAAI/bge-small-en-v1.5",
    "intfloat/multilingual-e5-small",
    "cross-encoder/ms-marco-MiniLM-L-12-v2",
}
SENTENCES = [
    "The invoice is due on Friday.",
    "Rain.",
    "A much longer sentence about the weather in the mountains, " * 8,
    "Who wrote the letter to the company in Ulm?",
]


def line(model: str, name: str, reference: str, real: bool, ours: Rows, theirs: Rows, alone: Rows) -> str:
    """`ours` in one batch, `alone` one by one."""
    apart = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
    within = max(float(np.abs(a - b).max()) for a, b in zip(ours, alone, strict=True))
    said: dict[str, Any] = {
        "model": model,
        "family": name,
        "reference": reference,
        "versions": {"torch": torch.__version__, "transformers": tf.__version__},
        "max_difference": float(f"{apart:.1e}"),
        "batch_equals_single": within <= 1e-4,
        "weights": "real" if real else "random",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    if ours[0].size > 1:
        said["cosine"] = round(min(_cosine(a, b) for a, b in zip(ours, theirs, strict=True)), 6)
    return json.dumps(said)


def _cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float(a.ravel() @ b.ravel() / (np.linalg.norm(a) * np.linalg.norm(b)))


def run(spec: ModelSpec, path: Path, task: Task, texts: Sequence[str], options: Any) -> tuple[Rows, Rows]:
    """In one batch, and one by one."""
    made = family(spec.family)
    model: Any = made.load(spec, path, "cpu")
    jobs = made.preparer(spec, path).prepare(task, [Item(text=text) for text in texts], options)
    batch = [_numbers(output) for output in model.run(jobs)]
    return batch, [_numbers(model.run([job])[0]) for job in jobs]


def _numbers(output: Any) -> NDArray[np.float32]:
    if (dense := getattr(output, "dense", None)) is not None:
        return np.asarray(dense, np.float32)
    if (score := getattr(output, "score", None)) is not None:
        return np.array([score], np.float32)
    found = sorted(output.classifications, key=lambda found: found.label)
    return np.array([each.score for each in found], np.float32)


def real() -> Iterator[str]:
    for spec in catalog.load([weights.CATALOG]):
        if spec.id not in REAL:
            continue
        path = weights.test_sources().locate(spec)
        if Task.ENCODE in spec.tasks:
            library = SentenceTransformer(
                str(path), device="cpu", local_files_only=True, model_kwargs=FLOAT32
            )
            prompt = spec.prompts.get("document", "")
            theirs = [library.encode([prompt + s], normalize_embeddings=True)[0] for s in SENTENCES]
            ours, alone = run(spec, path, Task.ENCODE, SENTENCES, EncodeOptions())
            yield line(spec.id, spec.family, "sentence-transformers", True, ours, theirs, alone)
            continue
        ranker = CrossEncoder(
            str(path), device="cpu", local_files_only=True, activation_fn=torch.nn.Identity()
        )
        theirs = [np.atleast_1d(ranker.predict([(SENTENCES[0], s)])[0]) for s in SENTENCES]
        ours, alone = run(spec, path, Task.SCORE, SENTENCES, ScoreOptions(query=Item(text=SENTENCES[0])))
        yield line(spec.id, spec.family, "sentence-transformers CrossEncoder", True, ours, theirs, alone)


def tiny(folder: Path) -> Iterator[str]:
    for name, config in tiny_texts.FAMILIES.items():
        path = tiny_texts.saved(config(), folder / name)
        yield _encoder(name, path)
        if name in ("jina_embeddings_v3", "nomic_bert", "embeddinggemma", *tiny_texts.DECODERS):
            continue
        for labels, kind in ((1, "cross_encoder"), (3, "text_classifier")):
            changed = config()
            changed.num_labels = labels
            auto = tf.AutoModelForSequenceClassification
            place = tiny_texts.saved(changed, folder / f"{name}-{kind}", auto)
            yield _head(name, kind, place)


def _encoder(name: str, path: Path) -> str:
    spec = _entry(name, "text_encoder", Task.ENCODE, outputs=("dense",), pooling="mean")
    ours, alone = run(spec, path, Task.ENCODE, tiny_texts.TEXTS, EncodeOptions())
    hidden = _reference(tf.AutoModel, path, lambda out: out.last_hidden_state[0].mean(0))
    theirs = [row / np.linalg.norm(row) for row in hidden]
    return line(f"tiny {name}", spec.family, "transformers", False, ours, theirs, alone)


def _head(name: str, kind: str, path: Path) -> str:
    auto = tf.AutoModelForSequenceClassification
    if kind == "text_classifier":
        spec = _entry(name, kind, Task.EXTRACT)
        ours, alone = run(spec, path, Task.EXTRACT, tiny_texts.TEXTS, ExtractOptions())
        theirs = _reference(auto, path, lambda out: out.logits[0].softmax(-1))
    else:
        spec = _entry(name, kind, Task.SCORE)
        asked = ScoreOptions(query=Item(text=QUERY))
        ours, alone = run(spec, path, Task.SCORE, tiny_texts.TEXTS, asked)
        theirs = _reference(auto, path, lambda out: out.logits[0], QUERY)
    return line(f"tiny {name}", kind, "transformers", False, ours, theirs, alone)


def _entry(name: str, kind: str, task: Task, **given: Any) -> ModelSpec:
    return ModelSpec(id=f"tiny/{name}", family=kind, tasks=(task,), sources=(Source(directory="/"),), **given)


def _reference(auto: Any, path: Path, of: Callable[[Any], Any], query: str | None = None) -> Rows:
    """Each text alone, without padding."""
    model, tokenizer = auto.from_pretrained(path).eval(), tf.AutoTokenizer.from_pretrained(path)
    found = []
    for text in tiny_texts.TEXTS:
        pair = (text,) if query is None else (query, text)
        with torch.inference_mode():
            found.append(of(model(**tokenizer(*pair, return_tensors="pt"))).numpy())
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for said in chain(tiny(Path(temporary)), real()):
            sys.stdout.write(said + "\n")
            sys.stdout.flush()
