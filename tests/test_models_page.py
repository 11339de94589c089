"""docs/models.md says what the catalogue and the comparisons say, and what was compared came out right."""

from __future__ import annotations

import json

from engine import catalog
from tests.models_page import COMPARED, PAGE, page
from tests.weights import CATALOG


def test_the_page_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(), "run `make docs`"


def test_what_was_compared_is_within_what_is_promised():
    for line in COMPARED.read_text("utf-8").splitlines():
        said = json.loads(line)
        assert said.get("batch_equals_single", True), said["model"]
        near = said.get("cosine", 0) >= 0.9999 or said.get("max_difference", 1) <= 1e-4
        assert near or said.get("equal"), said["model"]


def test_every_family_of_the_catalogue_was_compared():
    compared = {json.loads(line)["family"] for line in COMPARED.read_text("utf-8").splitlines()}

    assert {spec.family for spec in catalog.load([CATALOG])} <= compared
