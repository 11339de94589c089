"""Pages that are made from the code say what the code says; links inside the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from aiohttp.web import RouteDef

from engine.catalog import Limits, ModelSpec, Profile
from engine.config import Settings
from engine.declarations import declarations
from web import errors
from web.app import ROUTES
from web.cli.docs import settings_page

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_the_page_of_settings_is_current():
    assert (ROOT / "docs" / "settings.md").read_text("utf-8") == settings_page(), "run `make docs`"


def test_every_setting_says_what_it_is_for_and_reads_as_a_sentence():
    silent = [d.name for d in declarations() if not (d.unit and d.section and d.help.endswith("."))]

    assert silent == []


def test_a_default_is_printed_as_the_reader_would_take_it():
    page = settings_page()

    for row in re.findall(r"^\| `(\w+)` \| `(.+?)` \|", page, re.MULTILINE):
        name, written = row
        assert getattr(Settings(**{name: written}), name) == getattr(Settings(), name), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_our_own_files_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text("utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_front_page_can_be_read_in_one_go():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


def test_every_make_target_that_a_page_names_exists():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z]+)", page.read_text("utf-8"))}

    assert named <= targets


def test_every_route_is_in_the_reference():
    page = (ROOT / "docs" / "http.md").read_text("utf-8")
    written = set(re.findall(r"^\| `([A-Z]+) (/\S*)` \|", page, re.MULTILINE))
    routes = [route for route in ROUTES if isinstance(route, RouteDef)]
    bare = {(route.method, re.sub(r"{(\w+)(:[^}]*)?}", r"{\1}", route.path)) for route in routes}

    assert written - {("GET", "/static")} == bare


def test_every_error_is_in_the_reference_with_its_status():
    page = (ROOT / "docs" / "http.md").read_text("utf-8")
    written = {(int(s), code) for s, code in re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)}
    table = {(errors.status(kind()), errors.code(kind())) for kind in errors.STATUS}

    assert written == table


@pytest.mark.parametrize("model", [ModelSpec, Limits, Profile])
def test_every_key_of_the_catalogue_is_in_its_reference(model):
    page = (ROOT / "docs" / "catalogue.md").read_text("utf-8")

    assert [key for key in model.model_fields if f"`{key}`" not in page] == []
