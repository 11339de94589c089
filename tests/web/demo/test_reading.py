"""What the demo reads out of Markdown and answers, on texts that a person wrote."""

from __future__ import annotations

import pytest

from web.demo import reading

FORM = """\
# CLAIM FORM

## Section A

| Name of insured | Ada Byron |
| --- | --- |
| Policy number | FL-1 |

It rained: for two days, and the river rose.

| Item | Age | Amount |
|------|:---:|-------:|
| Sofa | 5 years | $10.00 |
| Total |  | $10.00 |

- Signed: Ada Byron
"""


def test_a_table_is_its_cells_without_the_rule():
    first, second = reading.tables(FORM)

    assert first == [["Name of insured", "Ada Byron"], ["Policy number", "FL-1"]]
    assert second == [["Item", "Age", "Amount"], ["Sofa", "5 years", "$10.00"], ["Total", "", "$10.00"]]


def test_pairs_come_from_tables_of_two_columns_and_from_lines():
    assert reading.pairs(FORM) == {
        "Name of insured": "Ada Byron",
        "Policy number": "FL-1",
        "It rained": "for two days, and the river rose.",
        "Signed": "Ada Byron",
    }


def test_plain_text_has_neither_bars_nor_hashes_and_keeps_every_value():
    assert reading.plain(FORM).splitlines() == [
        "CLAIM FORM",
        "Section A",
        "Name of insured: Ada Byron.",
        "Policy number: FL-1.",
        "It rained: for two days, and the river rose.",
        "Sofa: age 5 years, amount $10.00.",
        "Total: amount $10.00.",
        "- Signed: Ada Byron",
    ]


def test_sections_start_at_headings_of_the_second_level():
    assert reading.sections("# A\n\nintro\n\n## B\n\nb\n\n## C\n\nc\n") == ["B\n\nb", "C\n\nc"]


def test_likeness_is_the_cosine_and_nothing_is_like_nothing():
    assert reading.likeness([3.0, 4.0], [4.0, 3.0]) == pytest.approx(0.96)
    assert reading.likeness([0.0, 0.0], [1.0, 0.0]) == 0.0


def test_an_entity_that_is_found_twice_is_said_once():
    found = [("person", "Ada"), ("date", "today"), ("person", "Ada"), ("person", "Tim")]
    answer = {"items": [{"entities": [{"label": label, "text": text} for label, text in found]}]}

    assert reading.entities(answer) == {"person": ["Ada", "Tim"], "date": ["today"]}
