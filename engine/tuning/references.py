"""A model on this machine against the library that defines it: same texts, float32, worst difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine.adapters.family import Model, family
from engine.adapters.forward import weights
from engine.catalog import ModelSpec
from engine.errors import WeightsUnavailable
from engine.tuning import inputs
from engine.tuning.numbers import Answer, Apart, apart, numbers

TEXTS = ("", "flood", "The levee broke at dawn; Maria Gonzalez of 62 Baker Street, Springfield, called.")
COSINE, DIFFERENCE = 0.9999, 1e-4
ALONE = 1e-4
"""How far an answer may be from the same one alone."""


@dataclass(frozen=True, slots=True)
class Compared:
    family: str
    model: str
    reference: str
    versions: str
    apart: Apart
    alone: Apart
    """A batch against its items one by one."""

    @property
    def batch_equals_single(self) -> bool:
        return self.alone.max_difference <= ALONE

    @property
    def passed(self) -> bool:
        return self.batch_equals_single and self.apart.within(COSINE, DIFFERENCE)


def compare(spec: ModelSpec, path: Path) -> Compared | None:
    """None for a family without a reference here, and for a model whose reference is its repository's own
    code, which is not run. Raises ImportError where its library is not installed."""
    if spec.family not in REFERENCES or weights.of_own_code(path):
        return None
    library, answers = REFERENCES[spec.family]
    given = [*(text for text in TEXTS if text or spec.family != "token_classifier"), *inputs.texts(6)]
    spec = spec.model_copy(update={"backend": "torch", "options": _plain(spec)})
    expected = answers(spec, path, given)
    kind = family(spec.family)
    model = kind.load(spec, path, "cpu")
    try:
        if not isinstance(model, Model):
            return None
        jobs = inputs.prepared(spec, kind.preparer(spec, path), given)
        together = [numbers(output) for output in model.run(jobs)]
        alone = [numbers(model.run([job])[0]) for job in jobs]
    finally:
        model.unload()
    named = f"{library} {version(library)}"
    return Compared(spec.family, spec.id, library, named, apart(together, expected), apart(together, alone))


def _plain(spec: ModelSpec) -> dict[str, Any]:
    """Without what the entry does beyond its library."""
    return {} if spec.family == "token_classifier" else dict(spec.options)


def _dense(spec: ModelSpec, path: Path, given: Sequence[str]) -> list[Answer]:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    from engine.adapters.preparing.served import served
    from engine.adapters.preparing.tokens import prompted

    if spec.outputs and spec.outputs[0] != "dense":
        raise WeightsUnavailable(f"{spec.id} makes {spec.outputs[0]} vectors, which are not compared here")
    stored = served(spec, path)
    route = stored.routes["document"]
    given = [prompted(stored.prompts, "document", None, text) for text in given]
    if (path / "modules.json").is_file():
        model = SentenceTransformer(str(path), device="cpu", model_kwargs={"dtype": torch.float32})
    else:
        transformer = Transformer(str(path))
        pooling = Pooling(transformer.get_embedding_dimension(), route.pooling or "mean")
        model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    if not route.table:  # it has no length to be set
        model.max_seq_length = route.document_tokens or route.max_tokens or model.max_seq_length
    found = model.encode(list(given), prompt="", batch_size=1, show_progress_bar=False)
    return [row.astype("float64") for row in found]


def _pairs(spec: ModelSpec, path: Path, given: Sequence[str]) -> list[Answer]:
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(
        str(path), device="cpu", max_length=spec.max_tokens, activation_fn=torch.nn.Identity()
    )
    asked = [(str(inputs.QUERY.text), text) for text in given]
    scores = model.predict(asked, batch_size=1, show_progress_bar=False)
    return [{"score": float(score)} for score in scores]


def _classes(spec: ModelSpec, path: Path, given: Sequence[str]) -> list[Answer]:
    from transformers import pipeline

    run: Any = pipeline("text-classification", str(path), top_k=None, device="cpu")
    found = run(list(given), truncation=True, max_length=spec.max_tokens)
    return [{row["label"]: row["score"] for row in rows} for rows in found]


def _entities(spec: ModelSpec, path: Path, given: Sequence[str]) -> list[Answer]:
    from transformers import pipeline

    run: Any = pipeline("token-classification", str(path), aggregation_strategy="first", device="cpu")
    found = run(list(given))
    return [{(r["start"], r["end"], r["entity_group"]): float(r["score"]) for r in rows} for rows in found]


Reference = Callable[[ModelSpec, Path, Sequence[str]], list[Answer]]
REFERENCES: dict[str, tuple[str, Reference]] = {
    "cross_encoder": ("sentence-transformers", _pairs),
    "text_classifier": ("transformers", _classes),
    "text_encoder": ("sentence-transformers", _dense),
    "token_classifier": ("transformers", _entities),
}
"""By family: the library, and its answers to these texts."""
