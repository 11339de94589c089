"""Entries that are added to a running server: checked whole, kept in files of their own, and taken out."""

from __future__ import annotations

import json

import pytest

from engine import own_entries
from engine.errors import CatalogRejected, InvalidInput, StateChanged, UnknownModel
from tests.engine.test_changeover import entry, served, write
from tests.simulation import request

pytestmark = pytest.mark.anyio

TEXT = """\
# of my own
id: org/new
family: simulated
tasks: [encode]
outputs: [dense]
dims: {dense: 8}
devices: [simulated]
sources: [{directory: /}]
"""


@pytest.fixture
def places(tmp_path):
    """Where the operator's own files are, and the server's."""
    (tmp_path / "files").mkdir()
    return tmp_path / "files", tmp_path / "state" / "catalog"


def complaints(refused) -> list[str]:
    return refused.value.details["complaints"]


async def test_an_entry_is_served_at_once_and_is_there_after_a_restart(places):
    files, own = places
    async with served(files, entry("a"), state_dir=own.parent) as opened:
        seen = await opened.operators.preview_entry(TEXT)
        assert (seen.change.added, seen.before, own.exists()) == (("org/new",), None, False)
        done = await opened.operators.add_entry(TEXT, "user:ann")

        assert done.added == ("org/new",)
        assert (await opened.submit(request("org/new", "x"))).outputs
        assert await opened.operators.added_entries() == {"org/new"}
        assert str(own) in opened.view().catalog.directories
    kept = own / "org__new.yaml"
    assert "# of my own" in kept.read_text()
    assert [path.name for path in own.iterdir()] == [kept.name]
    async with served(files, entry("a"), state_dir=own.parent) as opened:
        await opened.operators.reload_catalog()
        assert "org/new" in opened.catalog.models


async def test_a_file_with_one_entry_will_do_too(places):
    files, own = places
    async with served(files, entry("a"), state_dir=own.parent) as opened:
        await opened.operators.add_entry(json.dumps({"models": [entry("b")]}))

        assert [*opened.catalog.models] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: an entry is keys and values"),
        ("[1, 2]", "1: an entry is keys and values"),
        ("a: [", "1:"),
        ("---\n" + TEXT, "1: write the keys"),
        (TEXT + "wieght: 2\n", "9: wieght: no key is called 'wieght'; did you mean 'weight'?"),
        (TEXT + "limits: {max_slots: 0}\n", "9: limits.max_slots: 0 is out of range"),
        (
            TEXT.replace("simulated\n", "simulatd\n"),
            "3: family: no family is called 'simulatd'; did you mean",
        ),
        (TEXT + "degrade: org/none\n", "9: degrade: no model is called 'org/none'"),
        (TEXT.replace("org/new", "../../etc/passwd"), "2: id: '../../etc/passwd' does not fit"),
        (json.dumps({"models": [entry("b"), entry("c")]}), "1: models: one entry at a time"),
        (json.dumps({"models": [entry("b") | {"weight": 0}]}), "1: weight: 0 is out of range"),
    ],
)
async def test_every_mistake_is_told_with_line_and_key_and_nothing_is_written(places, text, said):
    files, own = places
    async with served(files, entry("a"), state_dir=own.parent) as opened:
        for ask in (opened.operators.preview_entry, opened.operators.add_entry):
            with pytest.raises(CatalogRejected) as refused:
                await ask(text)
            assert complaints(refused)[0].startswith(said), complaints(refused)

        assert [*opened.catalog.models] == ["a"]
    assert not own.exists()


async def test_several_mistakes_are_told_together():
    with pytest.raises(CatalogRejected) as refused:
        own_entries.parse(TEXT + "weight: 0\nmax_tokens: none\n")

    assert {said.partition(":")[0] for said in complaints(refused)} == {"9", "10"}


async def test_what_other_files_describe_is_neither_replaced_nor_removed(places):
    files, own = places
    write(files, entry("a"), short="a")
    async with served(files, entry("a"), state_dir=own.parent) as opened:
        with pytest.raises(InvalidInput, match="another directory"):
            await opened.operators.add_entry(TEXT.replace("org/new", "a"))
        with pytest.raises(InvalidInput, match="was not added here"):
            await opened.operators.remove_entry("a")
        with pytest.raises(UnknownModel):
            await opened.operators.remove_entry("nobody")
        own.mkdir(parents=True)
        (own / "org__new.yaml").write_text("models: []\n")
        with pytest.raises(InvalidInput, match=r"org__new\.yaml"):
            await opened.operators.add_entry(TEXT)

        assert (own / "org__new.yaml").read_text() == "models: []\n"
        assert [*opened.catalog.models] == ["a"]


async def test_ones_own_is_replaced_and_what_differs_is_told_before(places):
    files, own = places
    async with served(files, entry("a"), state_dir=own.parent) as opened:
        await opened.operators.add_entry(TEXT)
        seen = await opened.operators.preview_entry(TEXT + "weight: 3\n")
        done = await opened.operators.add_entry(TEXT + "weight: 3\n")

        assert (seen.before.weight, seen.spec.weight, seen.change.revised) == (1.0, 3.0, ("org/new",))
        assert done.revised == ("org/new",)
        assert opened.catalog.models["org/new"].weight == 3.0


async def test_an_entry_goes_unless_another_leads_to_it(places):
    files, own = places
    async with served(files, entry("a"), state_dir=own.parent) as opened:
        await opened.operators.add_entry(TEXT)
        await opened.operators.add_entry(TEXT.replace("org/new", "org/other") + "degrade: org/new\n")
        with pytest.raises(CatalogRejected, match="degrade"):
            await opened.operators.remove_entry("org/new")
        await opened.operators.remove_entry("org/other")
        done = await opened.operators.remove_entry("org/new")

        assert done.removed == ("org/new",)
        assert [*opened.catalog.models] == ["a"]
    assert [*own.iterdir()] == []


async def test_of_two_who_add_the_second_is_refused(places):
    files, own = places
    async with served(files, entry("a"), state_dir=own.parent) as opened:
        version = opened.view().catalog.version
        await opened.operators.add_entry(TEXT, "user:ann", if_version=version)
        with pytest.raises(StateChanged, match="add-entry by user:ann"):
            await opened.operators.add_entry(TEXT, "user:bob", if_version=version)
