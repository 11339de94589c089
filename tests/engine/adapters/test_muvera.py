"""One vector of fixed length for a text of many: nearly MaxSim, and the same for ever."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from engine.adapters.forward.muvera import Muvera
from engine.adapters.forward.weights import BadWeights
from engine.errors import InvalidInput
from engine.requests import OutputType
from tests.engine.adapters.tiny_texts import FAMILIES, TEXTS, Served, saved

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def maxsim(query: np.ndarray, document: np.ndarray) -> float:
    return float((query @ document.T).max(1).sum())


@pytest.fixture(scope="module")
def texts() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Documents of words that lie in clusters, and queries that are a few words of one of them, blurred."""
    draw = np.random.RandomState(1)
    words = unit(draw.standard_normal((400, 64)))
    documents = [
        unit(words[draw.randint(0, 400, 30)] + 0.05 * draw.standard_normal((30, 64))) for _ in range(150)
    ]
    queries = [unit(d[draw.randint(0, 30, 8)] + 0.05 * draw.standard_normal((8, 64))) for d in documents[:50]]
    return queries, documents


def test_a_document_of_one_token_is_compared_exactly():
    made, draw = Muvera(16, 4, 3, None, 0), np.random.RandomState(0)
    query, document = unit(draw.standard_normal((5, 16))), unit(draw.standard_normal((1, 16)))

    assert made.query(query) @ made.document(document) == pytest.approx(maxsim(query, document), abs=1e-5)


def test_without_planes_it_is_the_sum_and_the_mean():
    made, draw = Muvera(16, 2, 0, None, 0), np.random.RandomState(0)
    query, document = draw.standard_normal((2, 7, 16)).astype(np.float32)

    found = made.query(query) @ made.document(document)

    assert found == pytest.approx(query.sum(0) @ document.mean(0), rel=1e-5)


def test_what_maxsim_ranks_first_is_among_the_first(texts):
    queries, documents = texts
    made = Muvera(64, 20, 5, 16, 0)
    held = np.stack([made.document(document) for document in documents])

    ranks = []
    for query in queries:
        best = int(np.argmax([maxsim(query, document) for document in documents]))
        ranks.append(int(np.flatnonzero(np.argsort(-(held @ made.query(query))) == best)[0]))

    assert np.mean(np.array(ranks) == 0) >= 0.9
    assert max(ranks) < 10


def test_more_repetitions_are_nearer_to_maxsim_and_none_is_above_it_without_projection(texts):
    queries, documents = texts
    exact = np.array([maxsim(q, d) for q in queries[:20] for d in documents[:20]])
    errors = []
    for repetitions in (1, 8, 40):
        made = Muvera(64, repetitions, 4, None, 3)
        asked = [made.query(query) for query in queries[:20]]
        held = [made.document(document) for document in documents[:20]]
        found = np.array([q @ d for q in asked for d in held])
        # a part's mean is never nearer than its nearest token
        assert (found <= exact + 1e-4).all()
        errors.append(1 - np.corrcoef(found, exact)[0, 1])
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1


def test_the_planes_of_a_seed_are_the_same_for_ever():
    made, axes = Muvera(8, 2, 3, 4, 7), np.eye(8, dtype=np.float32)[:, None]
    signs = np.stack([np.sign(made.query(axis)) for axis in axes]).astype(np.int8)

    assert made.size == 2 * 8 * 4
    assert hashlib.sha256(signs.tobytes()).hexdigest()[:16] == "4a02a75deeb22a29"
    assert not np.array_equal(Muvera(8, 2, 3, 4, 8).query(axes[0]), made.query(axes[0]))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return saved(FAMILIES["bert"](), tmp_path_factory.mktemp("bert"))


BOTH = (OutputType.DENSE, OutputType.MULTIVECTOR)
SMALL = {"repetitions": 3, "bits": 2, "projection": 8}


def served(path, **given) -> Served:
    fields = {"outputs": ("multivector", "dense"), "options": {"muvera": SMALL}, "dims": {"dense": 96}}
    return Served(path, **(fields | given))


def test_an_entry_gives_it_as_its_dense_vector_and_both_from_one_pass(path):
    model = served(path)
    made = Muvera(32, 3, 2, 8, 0)

    for is_query, make in ((True, made.query), (False, made.document)):
        both = model.encode(TEXTS, output_types=BOTH, is_query=is_query)
        alone = [
            model.encode([text], output_types=(OutputType.DENSE,), is_query=is_query)[0] for text in TEXTS
        ]
        for one, other in zip(both, alone, strict=True):
            assert np.abs(one.dense - make(one.multivector)).max() <= 1e-5
            assert np.abs(one.dense - other.dense).max() <= 1e-5


def test_scores_are_those_of_maxsim_whatever_comes_first(path):
    plain = Served(path, outputs=("multivector",))
    first = served(path, outputs=("dense", "multivector"))

    assert first.score("w1 w2", TEXTS) == pytest.approx(plain.score("w1 w2", TEXTS), abs=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"outputs": ("dense",)},
        {"options": {"muvera": {"planes": 3}}},
        {"options": {"muvera": {**SMALL, "bits": 11}}},
        {"options": {"muvera": {**SMALL, "projection": 0}}},
        {"options": {"muvera": {**SMALL, "repetitions": 100_000}}},
        {"options": {"muvera": {**SMALL, "seed": "x"}}},
        {"options": {"muvera": 7}},
        {"dims": {"dense": 32}},
    ],
)
def test_what_an_entry_cannot_mean_is_refused(wrong, path):
    with pytest.raises(BadWeights):
        served(path, **wrong)


def test_it_is_not_cut_shorter(path):
    with pytest.raises(InvalidInput, match="96"):
        served(path).encode(TEXTS, output_types=(OutputType.DENSE,), dimensions=32)
