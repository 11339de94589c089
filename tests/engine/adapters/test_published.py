"""Checkpoints of Jina and Nomic, whose own code is not run, give what the arithmetic of that code gives.

The reference is written out in `published.py`; it is not the repositories' code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from torch import Tensor
from transformers import AutoModel

from engine.adapters.forward import attention, dialects, weights
from engine.adapters.forward.jina_bert import slopes
from engine.adapters.forward.packed import Encoder
from engine.adapters.forward.pooling import pool
from engine.adapters.forward.weights import BadWeights
from engine.adapters.text_encoder import UNUSED
from engine.requests import Task
from engine.tuning import references
from tests.engine.adapters import published
from tests.engine.adapters.tiny_texts import GQA, TEXTS, Served, entry, saved

READ = [*TEXTS, " ".join(f"w{n % 60}" for n in range(62))]
"""From three tokens to as many as the models take."""
Reference = Callable[[Tensor], Tensor]


def _turned(to: Path) -> tuple[Path, Reference]:
    tensors = published.flash(adapted=True, positions=False)
    return published.saved(published.TURNED, tensors, to), lambda ids: published.read_flash(tensors, ids)


def _added(to: Path) -> tuple[Path, Reference]:
    tensors = published.flash(adapted=False, positions=True)
    return published.saved(published.ADDED, tensors, to), lambda ids: published.read_flash(tensors, ids)


def _alibi(to: Path) -> tuple[Path, Reference]:
    tensors, config = published.alibi(normed=False), published.ALIBI
    return published.saved(config, tensors, to), lambda ids: published.read_alibi(tensors, config, ids)


def _normed(to: Path) -> tuple[Path, Reference]:
    tensors, config = published.alibi(normed=True), published.NORMED
    return published.saved(config, tensors, to), lambda ids: published.read_alibi(tensors, config, ids)


def _nomic(to: Path) -> tuple[Path, Reference]:
    tensors = published.nomic()
    return published.saved(published.NOMIC, tensors, to), lambda ids: published.read_nomic(tensors, ids)


KINDS = {
    "jina-embeddings-v3 (XLM-RoBERTa, rotary)": _turned,
    "jina XLM-RoBERTa, positions added": _added,
    "jina-embeddings-v2 (JinaBERT)": _alibi,
    "jina-embeddings-v2-base-code (JinaBERT, normed)": _normed,
    "nomic-embed-text-v2-moe": _nomic,
}


@pytest.mark.parametrize("name", KINDS)
def test_vectors_are_those_of_the_published_arithmetic(
    name: str, tmp_path: Path, compared: Callable[..., None]
):
    path, reference = KINDS[name](tmp_path)
    served = Served(path, pooling="mean", normalize=False)
    jobs = served.prepare(READ)

    found = [output.dense for output in served.model.run(jobs)]
    back = [output.dense for output in served.model.run(jobs[::-1])][::-1]
    alone = [served.model.run([job])[0].dense for job in jobs]

    with torch.inference_mode():
        expected = [reference(torch.from_numpy(job.payload.ids).long()).mean(0).numpy() for job in jobs]
    assert max(len(job.payload.ids) for job in jobs) == 64
    assert np.abs(np.stack(found) - np.stack(expected)).max() <= 1e-4
    assert np.abs(np.stack(found) - np.stack(alone)).max() <= 1e-5
    assert np.abs(np.stack(found) - np.stack(back)).max() <= 1e-5
    compared("text_encoder", f"tiny {name}", "published arithmetic", found, expected, alone)


@pytest.mark.parametrize("name", KINDS)
def test_half_precision_keeps_directions(name: str, tmp_path: Path):
    path, _ = KINDS[name](tmp_path)
    served = Served(path, pooling="mean", normalize=False)
    jobs = served.prepare(READ)
    whole = torch.stack([torch.from_numpy(output.dense) for output in served.model.run(jobs)])

    for dtype in (torch.float16, torch.bfloat16):
        network = weights.load(AutoModel, path, "cpu", dtype, without=UNUSED)
        with torch.inference_mode():
            half = pool(Encoder(network).hidden([job.payload.ids for job in jobs]), "mean").float()
        assert torch.nn.functional.cosine_similarity(half, whole).min() >= 0.999


def _scored(served: Served, judge: Callable[[Any], float]) -> tuple[list[float], list[float], list[float]]:
    jobs = served.matches("w1 w2 w3", TEXTS)
    found = [output.score for output in served.model.run(jobs)]
    alone = [served.model.run([job])[0].score for job in jobs]
    with torch.inference_mode():
        return found, [judge(job.payload.pair) for job in jobs], alone


@pytest.mark.parametrize("kind", ["jina-reranker-v2", "jina-reranker-v1"])
def test_rerankers_score_as_the_published_arithmetic(
    kind: str, tmp_path: Path, compared: Callable[..., None]
):
    if kind == "jina-reranker-v2":
        tensors = published.flash(adapted=False, positions=True, labels=1)
        path = published.saved(published.ADDED, tensors, tmp_path)

        def judge(pair: Any) -> float:
            return published.judged_flash(tensors, torch.from_numpy(pair.ids).long())
    else:
        tensors, config = published.alibi(normed=True, labels=1), published.NORMED
        path = published.saved(config, tensors, tmp_path, types=True)

        def judge(pair: Any) -> float:
            ids, types = (torch.from_numpy(each).long() for each in (pair.ids, pair.types))
            return published.judged_alibi(tensors, config, ids, types)

    found, expected, alone = _scored(Served(path, family="cross_encoder", tasks=(Task.SCORE,)), judge)

    assert found == pytest.approx(expected, abs=1e-4)
    assert found == pytest.approx(alone, abs=1e-5)
    rows = [[[score] for score in scores] for scores in (found, expected, alone)]
    compared("cross_encoder", f"tiny {kind}", "published arithmetic", *rows)


def test_jina_colberts_vectors_are_those_of_its_tokens(tmp_path: Path):
    tensors = published.flash(adapted=False, positions=False)
    tensors["linear.weight"] = torch.randn(16, published.WIDTH, generator=torch.Generator().manual_seed(4))
    path = published.saved(published.TURNED | {"lora_adaptations": None}, tensors, tmp_path)
    about = {"query_token_id": "[Q] ", "doc_token_id": "[D] ", "query_maxlen": 12, "doc_maxlen": 64}
    (path / "artifact.metadata").write_text(json.dumps(about | {"attend_to_mask_tokens": True}))
    served = Served(path, outputs=("multivector",), dims={"multivector": 16})
    jobs = [*served.prepare(READ, is_query=True), *served.prepare(READ)]

    found = [output.multivector for output in served.model.run(jobs)]

    with torch.inference_mode():
        for job, rows in zip(jobs, found, strict=True):
            states = published.read_flash(tensors, torch.from_numpy(job.payload.ids).long())
            vectors = torch.nn.functional.normalize(states @ tensors["linear.weight"].T, dim=-1).numpy()
            counted = slice(None) if job.payload.counted is None else job.payload.counted
            assert np.abs(rows - vectors[counted]).max() <= 1e-5
    assert {len(job.payload.ids) for job in jobs[: len(READ)]} == {12}


def test_the_bias_of_a_long_text_is_made_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, _ = _alibi(tmp_path)
    served = Served(path, pooling="mean")
    whole = np.stack([output.dense for output in served.encode(READ)])

    monkeypatch.setattr(attention, "DISTANCES", 4 * 64 * 5)  # five tokens of the longest at a time

    assert np.abs(np.stack([output.dense for output in served.encode(READ)]) - whole).max() <= 1e-6


def test_tokens_that_nobody_sees_change_no_others_under_a_bias():
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, 6, 8) for _ in range(3))
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    unseen = np.zeros((2, 6), np.bool_)
    unseen[1, 4:] = True

    found = attention.attend_by_distance(query, key, value, None, slopes, unseen)
    cut = attention.attend_by_distance(query[1:, :, :4], key[1:, :, :4], value[1:, :, :4], None, slopes, None)

    assert torch.allclose(found[1:, :, :4], cut, atol=1e-6)


@pytest.mark.parametrize(
    ("config", "change", "said"),
    [
        (published.TURNED, {"rotary_emb_interleaved": True}, "rotary_emb_interleaved is True"),
        (published.ALIBI, {"feed_forward_type": "original"}, "feed_forward_type is 'original'"),
        (published.ALIBI, {"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute'"),
        (published.NOMIC, {"expert_choice_router": True}, "expert_choice_router is True"),
        (published.NOMIC, {"parallel_block": True}, "parallel_block is True"),
    ],
)
def test_a_variant_that_is_computed_otherwise_is_refused(
    config: dict[str, Any], change: dict[str, Any], said: str, tmp_path: Path
):
    path = published.saved(config | change, published.nomic(), tmp_path)

    with pytest.raises(BadWeights, match=said):
        Served(path)


@pytest.mark.parametrize(
    ("config", "key"),
    [(published.ALIBI, "position_embedding_type"), (published.NOMIC, "rotary_emb_fraction")],
)
def test_what_a_configuration_leaves_out_is_not_taken_for_what_runs_here(config: dict[str, Any], key: str):
    """Their code takes other positions then."""
    with pytest.raises(ValueError, match=f"{key} is "):
        dialects.translated({name: said for name, said in config.items() if name != key})


def test_nvidias_bidirectional_llama_is_a_llama_whose_tokens_see_all_others(tmp_path: Path):
    path = saved(tf.LlamaConfig(**GQA), tmp_path, ends="$A")
    held = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(held | {"model_type": "llama_bidirec"}))
    served = Served(path, pooling="mean", normalize=False)
    library = tf.AutoModel.from_pretrained(path, config=tf.LlamaConfig(**GQA), attn_implementation="eager")

    jobs = served.prepare(READ)
    found = [output.dense for output in served.model.run(jobs)]

    with torch.inference_mode():
        for job, row in zip(jobs, found, strict=True):
            ids = torch.from_numpy(job.payload.ids).long()[None]
            nothing_hidden = torch.zeros(1, 1, ids.shape[1], ids.shape[1])
            states = library(ids, attention_mask=nothing_hidden).last_hidden_state[0]
            assert np.abs(row - states.mean(0).numpy()).max() <= 1e-4


def test_what_has_code_of_its_own_is_not_compared_with_a_library_that_would_run_it(tmp_path: Path):
    path, _ = _alibi(tmp_path)

    assert references.compare(entry(), path) is None


def test_other_configurations_stay_as_they_are():
    bert = {"model_type": "bert", "auto_map": {"AutoConfig": "a--b.BertConfig"}, "hidden_size": 4}

    assert dialects.translated(bert) == bert
    assert dialects.renamed("bert", {"encoder.layers.0.norm1.weight": 1}) == {
        "encoder.layers.0.norm1.weight": 1
    }


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12, 16])
def test_slopes_are_those_of_the_paper_and_between_them_where_heads_are_no_power_of_two(heads: int):
    def of_a_power(count: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(count) - 3)))
        return [start * start**step for step in range(count)]

    power = 2 ** math.floor(math.log2(heads))
    expected = of_a_power(power) + of_a_power(2 * power)[0::2][: heads - power]

    assert slopes(heads) == pytest.approx(expected)
