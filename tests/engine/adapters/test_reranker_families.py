"""Cross-encoders of every family give what sentence-transformers gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from sentence_transformers import CrossEncoder

from engine.requests import Scored, Task
from tests.engine.adapters.tiny_texts import DECODERS, FAMILIES, LONGEST, TEXTS, Served, saved

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
QUERY = "w1 w9 : w4"


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "embeddinggemma"])
def test_each_family_gives_the_scores_of_sentence_transformers(
    name: str, tmp_path: Path, compared: Callable[..., None]
):
    config = FAMILIES[name]()
    config.num_labels = 1
    ends = "$A" if name in DECODERS else "[CLS] $A [SEP]"
    path = saved(config, tmp_path, tf.AutoModelForSequenceClassification, ends=ends)
    reference = CrossEncoder(str(path), device="cpu", max_length=LONGEST, activation_fn=torch.nn.Identity())
    expected = reference.predict([(QUERY, text) for text in TEXTS], batch_size=1)
    reranker = Served(path, family="cross_encoder", tasks=(Task.SCORE,), max_tokens=LONGEST)

    scores = reranker.score(QUERY, TEXTS)
    alone = [reranker.score(QUERY, [text])[0] for text in TEXTS]
    back = reranker.score(QUERY, TEXTS[::-1])[::-1]

    assert np.abs(np.array(scores) - expected).max() <= 1e-4
    assert np.abs(np.array(scores) - alone).max() <= 1e-5
    assert np.abs(np.array(scores) - back).max() <= 1e-5
    compared("cross_encoder", f"tiny {name}", "sentence-transformers", scores, expected, alone)


def test_a_thousand_documents_are_scored_in_one_call_and_duplicates_alike(tmp_path: Path):
    config = FAMILIES["bert"]()
    config.num_labels = 1
    path = saved(config, tmp_path, tf.AutoModelForSequenceClassification)
    reranker = Served(path, family="cross_encoder", tasks=(Task.SCORE,), max_tokens=LONGEST)
    documents = [f"w{i % 50} w{i % 7}" for i in range(700)] * 2

    outputs = reranker.model.run(reranker.matches(QUERY, documents[:1000]))

    scores = [output.score for output in outputs if isinstance(output, Scored)]
    assert len(scores) == 1000
    assert scores[:300] == pytest.approx(scores[700:], abs=1e-6)
