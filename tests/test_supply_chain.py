"""What others made and we install: its licences, and what is known against it."""

from __future__ import annotations

import json
import pickle
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from engine.adapters.forward import weights
from tests import audit, licences

ROOT = Path(__file__).parent.parent


def test_nothing_that_is_always_needed_is_under_the_gpl():
    needed = licences.required()

    assert {"aiohttp", "torch", "structlog", "numpy"} <= set(needed)
    assert {
        name: licences.licence(one) for name, one in needed.items() if licences.binding(licences.licence(one))
    } == {}


@pytest.mark.parametrize(
    ("said", "bound"),
    [
        ("GPL-3.0-or-later", True),
        ("AGPL-3.0", True),
        ("GNU General Public License v2 (GPLv2)", True),
        ("MIT OR GPL-2.0-only", False),
        ("LGPL-2.1", False),
        ("GNU Lesser General Public License v3 (LGPLv3)", False),
        ("Apache-2.0", False),
    ],
)
def test_a_licence_that_binds_is_known_by_its_name(said, bound):
    assert licences.binding(said) is bound


def test_the_page_of_licences_lists_what_is_always_needed():
    page = (ROOT / "docs" / "licences.md").read_text("utf-8")
    direct = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = [canonicalize_name(Requirement(line).name) for line in direct]

    assert [name for name in names if f"| {name} |" not in page] == [], "run `make licences`"


def found(**package: object) -> str:
    return json.dumps(
        {"dependencies": [{"name": "a", "version": "1", **package}, {"name": "b", "skip_reason": "x"}]}
    )


def test_a_known_vulnerability_fails_and_says_which_version_helps():
    code, said = audit.verdict(1, found(vulns=[{"id": "CVE-1", "fix_versions": ["2"]}]), "")

    assert code == 1
    assert said.startswith("a 1: CVE-1, fixed in 2\n") and "1 packages audited, 1 unknown" in said


def test_nothing_known_is_said_with_how_many_were_asked_for():
    assert audit.verdict(0, found(vulns=[]), "")[0] == 0
    assert "1 packages audited" in audit.verdict(0, found(vulns=[]), "")[1]


@pytest.mark.parametrize(
    ("code", "out", "errors"),
    [(0, found(skip_reason="not found"), ""), (1, "", "requests.exceptions.ConnectionError: no route")],
)
def test_where_nobody_can_be_asked_that_is_said_and_no_failure(code, out, errors):
    assert audit.verdict(code, out, errors) == (0, audit.NOBODY)


def test_an_audit_that_breaks_is_a_failure():
    assert audit.verdict(2, "", "usage: pip-audit") == (2, "usage: pip-audit")


def test_weights_that_are_pickles_are_refused_with_the_reason(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', "utf-8")
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": [1.0]}))

    with pytest.raises(weights.BadWeights, match="pickles are not read"):
        weights.stored_tensors(tmp_path)
