from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.labelling.labels import Labels
from engine.errors import InvalidInput

OWN = ("PERSON", "ORG", "GPE", "LOC", "WORK_OF_ART")
TABLE = {"person": "PERSON", "organization": "ORG", "company": "ORG", "location": "GPE|LOC"}
LABELS = Labels("m", OWN, TABLE)
ASKABLE = [*OWN, *TABLE]


def test_nothing_asked_means_all_of_the_model_by_their_own_names():
    assert LABELS.choose([]).names == {label: label for label in OWN}


def test_an_answer_carries_the_label_as_the_caller_spelled_it():
    chosen = LABELS.choose(["OrGaNiZaTion", "work of art"])

    assert chosen.name("ORG") == "OrGaNiZaTion"
    assert chosen.name("WORK_OF_ART") == "work of art"
    assert chosen.name("PERSON") is None


def test_one_asked_name_may_mean_several_labels():
    assert LABELS.choose(["Location"]).names == {"GPE": "Location", "LOC": "Location"}


def test_of_two_names_for_one_label_the_first_asked_is_given():
    assert LABELS.choose(["company", "organization"]).names == {"ORG": "company"}


def test_an_unknown_label_is_refused_with_the_list_of_what_there_is():
    with pytest.raises(InvalidInput) as refused:
        LABELS.choose(["person", "flavour"])

    assert str(refused.value) == (
        "m does not know the label 'flavour'; it can give: "
        "company, GPE, LOC, location, ORG, organization, PERSON, person, WORK_OF_ART"
    )


@pytest.mark.parametrize("name", ["", " ", "x" * 10_000])
def test_an_empty_or_endless_label_is_refused_briefly(name):
    with pytest.raises(InvalidInput) as refused:
        LABELS.choose([name])

    assert len(str(refused.value)) < 400


def test_a_table_that_names_a_label_the_model_lacks_is_an_error_of_the_catalogue():
    with pytest.raises(ValueError, match="'planet' means 'PLANET'"):
        Labels("m", OWN, {"planet": "PLANET"})


@given(st.lists(st.sampled_from(ASKABLE), min_size=1, max_size=20), st.randoms())
def test_order_case_and_repetition_do_not_change_what_is_wanted(asked, random):
    spelled = [random.choice([str.upper, str.lower, str.title])(name) for name in asked * 2]
    random.shuffle(spelled)

    wanted = LABELS.choose(asked).names
    found = LABELS.choose(spelled).names

    assert found.keys() == wanted.keys()
    assert set(found.values()) <= set(spelled)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_every_request_is_either_understood_whole_or_refused(asked):
    try:
        names = LABELS.choose(asked).names
    except InvalidInput:
        return
    assert names
    assert set(names.values()) <= set(asked)
