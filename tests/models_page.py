"""docs/models.md: which models there are, family by family, and what is known of their answers.

`python -m tests.models_page > docs/models.md`, which is `make docs`. Facts come from the bundled
catalogue and from docs/compared.jsonl, the lines of `python -m tests.compared`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from engine import catalog
from engine.entry import ModelSpec

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/models.md"
COMPARED = ROOT / "docs/compared.jsonl"
TESTS = ROOT / "tests/engine/adapters"

HEAD = """\
# Models

This page is made from the bundled catalogue and `docs/compared.jsonl` by `make docs`; a test compares
them.

{count} entries. A model whose repository is on a hub and whose architecture one of these families serves
needs no entry of ours: `serai models add ORG/NAME` prints one made of its `config.json`, `modules.json`,
`sentence_bert_config.json`, `tokenizer_config.json` and the licence of its card; `--write` keeps it, and a
running server sees it within seconds. With the setting `open_catalog` a request that names such a
repository is enough. Nobody has compared the answers of an entry that is made so: look at it, and at the
model's own card.

**Real weights**: the model itself was compared with the reference. **Random weights**: a model of a few
kilobytes with the same architecture was. Each difference is the largest of any number, in float32 on a CPU;
boxes are shares of their image; of texts it says whether they were equal. *Batch* says whether an input gave
the same among others as alone, within 1e-4, where the test that compared ran both. The figures are what the
tests of each family measured. What has real weights here is what the starter pack carries; the other entries
are read from a hub and have not been run where the project is built. How their facts were looked up:
[the catalogue](catalogue.md).
"""


def page() -> str:
    """docs/models.md as it should be."""
    known = sorted(catalog.load([ROOT / "catalog"]), key=lambda spec: (spec.family, spec.id.lower()))
    compared = [json.loads(line) for line in COMPARED.read_text("utf-8").splitlines()]
    parts = [HEAD.format(count=len(known))]
    for family, specs in groupby(known, key=lambda spec: spec.family):
        parts += _family(family, list(specs), [c for c in compared if c["family"] == family])
    return "".join(parts)


def _family(name: str, specs: Sequence[ModelSpec], compared: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"\n## {name}\n\n"
    if compared:
        yield "| compared | weights | reference | difference | cosine | batch | versions, date |\n"
        yield "| --- | --- | --- | --- | --- | --- | --- |\n"
        yield from map(_figures, compared)
        yield "\n"
    test = TESTS / f"test_{name}.py"
    if test.is_file():
        yield f"Tests: `{test.relative_to(ROOT)}`.\n\n"
    yield "| entry | tasks | tokens | dims | dtype | licence | what it is |\n"
    yield "| --- | --- | --- | --- | --- | --- | --- |\n"
    yield from map(_entry, specs)


def _figures(said: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in said["versions"].items())
    batch = {True: "equal", False: "differs", None: ""}[said.get("batch_equals_single")]
    apart = said.get("max_difference", "equal" if said.get("equal") else "differs")
    return (
        f"| {said['model']} | {said['weights']} | {said['reference']} | {apart} "
        f"| {said.get('cosine', '')} | {batch} | {versions}, {said['date']} |\n"
    )


def _entry(spec: ModelSpec) -> str:
    dims = ", ".join(f"{kind} {size}" for kind, size in spec.dims.items())
    shorter = f" ({', '.join(map(str, spec.matryoshka))})" if spec.matryoshka else ""
    return (
        f"| `{spec.id}` | {' '.join(spec.tasks)} | {spec.max_tokens or ''} | {dims}{shorter} | {spec.dtype} "
        f"| {spec.licence} | {spec.description} |\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
