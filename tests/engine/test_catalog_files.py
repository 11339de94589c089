"""What is said of a catalogue file that is wrong: file, line, key, and what would do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import catalog, units

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
        ("weight: 0", "6: models.0.weight: 0 is out of range: it must be at least 0.001"),
        ("max_tokens: 0", "6: models.0.max_tokens: 0 is out of range: it must be at least 1"),
        ("prompts: {query: !!binary eA==}", "6: models.0.prompts.query: Input should be a valid string"),
        ("options: {a: [!!binary eA==]}", "6: models.0.options: bytes are no text"),
        ("activation: rw", "6: models.0.activation: 'rw' is not possible; it is one of 'raw' or 'sigmoid'"),
    ],
)
def test_a_wrong_value_is_said_in_our_words(tmp_path, line, said):
    assert complaints(tmp_path, GOOD + f"    {line}\n") == [said]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'preheat: "Mon-Fri 25:00"',
            "6: models.0.preheat.0: 'Mon-Fri 25:00' is no time; write 22:00, or Mon-Fri",
        ),
        ('unload: ["22:00", "Mond 8:00"]', "6: models.0.unload.1: 'mond' is no day; there are Mon, Tue, Wed"),
        (
            "idle_unload: 5 minutes",
            "6: models.0.idle_unload: '5 minutes' is no duration; write seconds, or 200ms",
        ),
        ("degrade: a/b:fast", "6: models.0.degrade: no profile of a/b is called 'fast'; there are: default"),
    ],
)
def test_a_time_a_duration_or_a_profile_that_is_none_is_named_by_its_line(tmp_path, line, said):
    (complaint,) = complaints(tmp_path, GOOD + f"    {line}\n")

    assert complaint.startswith(said)


def test_times_and_durations_are_read(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        GOOD + '    preheat: "Mon-Fri 08:00"\n    unload: ["22:00", "Sat 12:00"]\n    idle_unload: 5min\n'
    )
    (spec,) = catalog.load([tmp_path])

    assert (spec.preheat, spec.unload) == (("Mon-Fri 08:00",), ("22:00", "Sat 12:00"))
    assert spec.idle_unload == 300.0
    assert units.facts(spec, None, None).idle_unload == 300.0


@pytest.mark.parametrize(
    "held", [b"models: \xff\xfe", b"models: 2026-99-99", b"[" * 5000], ids=["no text", "no date", "a pit"]
)
def test_a_file_that_cannot_be_read_is_a_complaint(tmp_path, held):
    (tmp_path / "mine.yaml").write_bytes(held)
    with pytest.raises(catalog.CatalogError) as refused:
        catalog.load([tmp_path])

    assert refused.value.complaints[0].startswith(f"{tmp_path}/mine.yaml:")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('!!int ""', "1: '' is no int"),
        ("!!bool maybe", "1: 'maybe' is no bool"),
        ("!!timestamp x", "1: 'x' is no timestamp"),
        ('!!float ""', "1: '' is no float"),
        ("2026-99-99", "1: '2026-99-99' is no timestamp"),
        ("[\n  \x01]", "2: there is a character #x0001"),
        ("&a [*a]", "1: this holds itself"),
        ("[" * 100 + "]" * 100, "1: it is more than 60 levels deep"),
    ],
)
def test_what_the_parser_itself_stumbles_over_is_named_by_its_line(tmp_path, value, said):
    (complaint,) = complaints(tmp_path, f"models: {value}\n")

    assert complaint.startswith(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{a: &b {c: *b}}", "6: this holds itself: its alias is inside what it names"),
        (
            "[&b0 [x], " + ", ".join(f"&b{n + 1} [*b{n}]" for n in range(60)) + "]",
            "6: with its aliases it is more than 60 levels deep",
        ),
        (
            "[&b0 x, " + ", ".join(f"&b{n + 1} [*b{n}, *b{n}]" for n in range(30)) + "]",
            "6: its aliases stand for more than 500000 values",
        ),
    ],
    ids=["a circle", "a pit", "a bomb"],
)
def test_aliases_that_stand_for_more_than_anybody_could_read_are_refused(tmp_path, options, said):
    assert complaints(tmp_path, GOOD + f"    options: {options}\n") == [said]


def test_aliases_that_stand_for_little_are_what_they_stand_for(tmp_path):
    (tmp_path / "mine.yaml").write_text(GOOD + "    options: {a: &a [1, 2], b: *a, <<: {c: *a}}\n")
    (spec,) = catalog.load([tmp_path])

    assert spec.options == {"a": [1, 2], "b": [1, 2], "c": [1, 2]}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("weight: .inf", "weight: inf is no number"),
        ("weight: .nan", "weight: nan is no number"),
        ("weight: 1.0e+9", "weight: 1000000000.0 is out of range: it must be at most 1000"),
        ("weight: true", "weight: expected a number, not true or false"),
        ("targets: {interactive: -1}", "targets.interactive: -1 is out of range: it must be more than 0"),
        ("targets: {interactive: .inf}", "targets.interactive: inf is no number"),
        ("idle_unload: 0", "idle_unload: 0 is out of range: it must be more than 0"),
        ("idle_unload: 1e999s", "idle_unload: '1e999s' is out of range: it must be at most 1e+09"),
        ("max_tokens: 1.0e+23", "max_tokens: 1e+23 is no whole number"),
        ("max_tokens: 1e+23", "max_tokens: '1e+23' is no whole number"),
        ("max_tokens: true", "max_tokens: expected a number, not true or false"),
        (
            "max_tokens: 99999999999999999999999",
            "max_tokens: 99999999999999999999999 is out of range: it must be at most 1e+09",
        ),
        ("matryoshka: [-1]", "matryoshka.0: -1 is out of range: it must be at least 1"),
        (
            "limits: {max_item_bytes: 1.0e+16}",
            "limits.max_item_bytes: 1e+16 is out of range: it must be at most 1e+15",
        ),
    ],
)
def test_a_number_that_nobody_can_mean_is_refused(tmp_path, line, said):
    assert complaints(tmp_path, GOOD + f"    {line}\n") == [f"6: models.0.{said}"]


OTHER = GOOD.removeprefix("models:\n").replace("a/b", "a/c")
PROFILES = "    profiles: {same: {limits: {max_slots: 1}}, other: {dtype: float16}}\n"


def test_who_degrades_to_itself_or_in_a_circle_is_named_by_its_line(tmp_path):
    (tmp_path / "mine.yaml").write_text(GOOD + PROFILES + "    degrade: a/b:other\n")
    assert len(catalog.load([tmp_path])) == 1

    for itself in ("a/b", "a/b:default", "a/b:same"):
        assert complaints(tmp_path, GOOD + PROFILES + f"    degrade: {itself}\n") == [
            "7: models.0.degrade: a/b -> a/b: this leads back to where it began"
        ]
    third = OTHER.replace("a/c", "a/d") + "    degrade: a/b\n"
    text = GOOD + "    degrade: a/c\n" + OTHER + "    degrade: a/b\n" + third
    assert complaints(tmp_path, text) == [
        "6: models.0.degrade: a/b -> a/c -> a/b: this leads back to where it began",
        "11: models.1.degrade: a/c -> a/b -> a/c: this leads back to where it began",
    ]


def test_an_alias_with_the_name_of_an_entry_is_refused_unless_that_came_later(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, text in ((ours, GOOD + "aliases: {a/c: a/b}\n"), (theirs, "models:\n" + OTHER)):
        folder.mkdir()
        (folder / "mine.yaml").write_text(text)

    assert catalog.load([ours, theirs]).aliases == {}
    with pytest.raises(catalog.CatalogError) as refused:
        catalog.load([theirs, ours])
    assert refused.value.complaints == [
        f"{ours}/mine.yaml:6: aliases.a/c: there is an entry a/c; give the alias another name"
    ]
    assert complaints(theirs, GOOD + "aliases: {'x:y': a/b}\n")[0].startswith("6: aliases.x:y.[key]: 'x:y'")


@pytest.mark.parametrize("value", [".nan", "{deep: [1, .inf]}"])
def test_an_option_that_is_no_number_is_refused(tmp_path, value):
    (complaint,) = complaints(tmp_path, GOOD + f"    options: {{threshold: {value}}}\n")
    assert "no number that can be used" in complaint


def test_what_is_no_file_is_a_complaint_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (complaint,) = complaints(tmp_path, GOOD)
    assert complaint == f"{tmp_path}/pipe.yaml: this is no file; an entry of the catalogue is one"


@pytest.mark.parametrize("name", ["org/..", "org/.", "org/..."])
def test_an_id_has_no_part_of_dots_alone(tmp_path, name):
    (complaint,) = complaints(tmp_path, GOOD.replace("id: a/b", f"id: {name}"))
    assert "models.0.id" in complaint
