"""What is said of a catalogue file that is wrong: file, line, key, and what would do."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import catalog

GOOD = """\
models:
  - id: a/b
    family: text_encoder
    tasks: [encode]
    sources: [{directory: /nowhere}]
"""


def complaints(folder: Path, text: str) -> list[str]:
    (folder / "mine.yaml").write_text(text)
    with pytest.raises(catalog.CatalogError) as refused:
        catalog.load([folder], families=["detector", "text_encoder"])
    return [complaint.removeprefix(f"{folder}/mine.yaml:") for complaint in refused.value.complaints]


def test_a_family_that_there_is_not_is_refused_with_the_nearest(tmp_path):
    assert complaints(tmp_path, GOOD.replace("text_encoder", "text_encodr")) == [
        (
            "3: models.0.family: no family is called 'text_encodr'; did you mean 'text_encoder'? "
            "There are: detector, text_encoder"
        )
    ]


def test_an_alias_or_a_degrade_of_nothing_is_named_by_its_line(tmp_path):
    text = GOOD + "    degrade: a/c\naliases:\n  short: a/bb\n"

    assert complaints(tmp_path, text) == [
        "8: aliases.short: no model is called 'a/bb'; did you mean 'a/b'? There are: a/b",
        "6: models.0.degrade: no model is called 'a/c'; did you mean 'a/b'? There are: a/b",
    ]


def test_a_wrong_key_of_a_source_is_one_complaint_with_the_nearest_key(tmp_path):
    (said,) = complaints(tmp_path, GOOD.replace("directory:", "directry:"))

    assert said.startswith(
        "5: models.0.sources.0.directry: no key is called 'directry'; did you mean 'directory'?"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("weight: 0", "6: models.0.weight: 0 is out of range: it must be more than 0"),
        ("max_tokens: 0", "6: models.0.max_tokens: 0 is out of range: it must be at least 1"),
        ("activation: rw", "6: models.0.activation: 'rw' is not possible; it is one of 'raw' or 'sigmoid'"),
    ],
)
def test_a_wrong_value_is_said_in_our_words(tmp_path, line, said):
    assert complaints(tmp_path, GOOD + f"    {line}\n") == [said]
