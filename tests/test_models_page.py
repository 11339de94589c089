"""docs/models.md says what the catalogue and the comparisons say, and what was compared came out right."""

from __future__ import annotations

import json

from tests.models_page import COMPARED, PAGE, page


def test_the_page_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(), "run `make docs`"


def test_what_was_compared_is_within_what_is_promised():
    for line in COMPARED.read_text("utf-8").splitlines():
        said = json.loads(line)
        assert said["batch_equals_single"], said["model"]
        assert said.get("cosine", 0) >= 0.9999 or said["max_difference"] <= 1e-4, said["model"]
