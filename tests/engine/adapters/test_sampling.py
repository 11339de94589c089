from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from engine.adapters.generation import sampling
from engine.adapters.generation.sampling import Sampler
from engine.errors import InvalidInput
from engine.requests import GenerateOptions

GREEDY = GenerateOptions()
LOGITS = torch.tensor([0.0, 2.0, 1.0, -1.0])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"stop": ("x",) * 17}, "stop"),
        ({"stop": ("",)}, "stop"),
        ({"stop": (3,)}, "stop"),
        ({"frequency_penalty": 3.0}, "frequency_penalty"),
        ({"presence_penalty": -3.0}, "presence_penalty"),
        ({"logit_bias": {100: 1.0}}, "logit_bias"),
        ({"logit_bias": {"a": 1.0}}, "logit_bias"),
        ({"logit_bias": {1: 101.0}}, "logit_bias"),
    ],
)
def test_a_wrong_option_is_named(wrong, named):
    with pytest.raises(InvalidInput, match=f"^{named} "):
        sampling.check(replace(GREEDY, **wrong), vocabulary=100)


def test_options_at_their_bounds_are_taken():
    sampling.check(GREEDY, 100)
    sampling.check(
        GenerateOptions(temperature=100, top_p=1, seed=2**64 - 1, stop=("x",) * 16, logit_bias={99: -100}),
        100,
    )


def test_temperature_0_takes_the_largest_logit():
    assert sampling.choose(torch.stack([LOGITS, LOGITS.flip(0)]), [Sampler(GREEDY)] * 2) == [1, 2]


def test_logits_that_are_no_numbers_fail_their_own_row():
    rows = torch.stack([LOGITS, LOGITS, LOGITS, LOGITS])
    rows[1, 2] = float("nan")
    rows[2, 0] = float("inf")
    rows[3, 0] = -float("inf")

    assert sampling.choose(rows, [Sampler(GREEDY)] * 4) == [1, None, None, 1]


def test_tokens_come_as_often_as_their_chances_say():
    sampler = Sampler(GenerateOptions(temperature=0.7, seed=1))
    drawn = Counter(sampler.choose(LOGITS) for _ in range(4000))
    chances = (LOGITS / 0.7).softmax(-1).tolist()

    assert [drawn[token] / 4000 for token in range(4)] == pytest.approx(chances, abs=0.02)


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    sampler = Sampler(GenerateOptions(temperature=1.0, top_p=0.8, seed=1))
    drawn = Counter(sampler.choose(LOGITS) for _ in range(2000))
    first, second = LOGITS.softmax(-1)[[1, 2]].tolist()  # 0.64 and 0.24

    assert set(drawn) == {1, 2}
    assert drawn[1] / 2000 == pytest.approx(first / (first + second), abs=0.03)


def test_top_p_looks_beyond_the_first_candidates_when_it_must():
    sampler = Sampler(GenerateOptions(temperature=1.0, top_p=0.9, seed=1))
    drawn = {sampler.choose(torch.zeros(2000)) for _ in range(1000)}

    assert len(drawn) > sampling.NUCLEUS


def test_a_seed_means_the_same_answer_and_no_seed_another():
    def answer(seed: int | None) -> list[int]:
        sampler = Sampler(GenerateOptions(temperature=1.0, seed=seed))
        return [sampler.choose(torch.zeros(1000)) for _ in range(20)]

    assert answer(3) == answer(3)
    assert answer(3) != answer(4)
    assert answer(None) != answer(None)


def test_a_tiny_temperature_is_nearly_greedy():
    assert Sampler(GenerateOptions(temperature=1e-30, seed=1)).choose(LOGITS * 1e6) == 1


def test_penalties_count_what_was_generated():
    sampler = Sampler(GenerateOptions(presence_penalty=0.5, frequency_penalty=0.4))
    chosen = []
    for _ in range(3):
        chosen.append(sampler.choose(LOGITS))
        sampler.saw(chosen[-1])

    # 2.0, then 2.0 - 0.9 = 1.1 against 1.0, then 2.0 - 1.3 = 0.7 against 1.0
    assert chosen == [1, 1, 2]
    assert LOGITS.tolist() == [0.0, 2.0, 1.0, -1.0]


def test_a_bias_is_added_to_its_token():
    assert Sampler(GenerateOptions(logit_bias={3: 3.5})).choose(LOGITS) == 3
    assert Sampler(GenerateOptions(logit_bias={1: -100})).choose(LOGITS) == 2
