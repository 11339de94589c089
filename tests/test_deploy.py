"""What is in `deploy/` is well formed and asks only for metrics that a server has. No image is built."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, ConfigDict, Field

from engine.config import Settings
from engine.declarations import declarations
from tests import simulation

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
ALERTS = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text("utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/serai.json").read_text("utf-8"))
DOCKERFILES = ("Dockerfile.cpu", "Dockerfile.cuda")
SETTINGS = {d.variable for d in declarations()}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Rule(Strict):
    alert: str = Field(pattern=r"^Serai[A-Za-z]+$")
    expr: str
    for_: str = Field(alias="for", pattern=r"^\d+[smhd]$")
    labels: dict[str, str]
    annotations: dict[str, str]


class Group(Strict):
    name: str
    rules: list[Rule]


class Rules(Strict):
    groups: list[Group]


def rules() -> list[Rule]:
    return [rule for group in Rules.model_validate(ALERTS).groups for rule in group.rules]


def expressions() -> list[str]:
    """Every expression, with Grafana's own variables replaced by what it puts there."""
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    written = [text.replace("$__rate_interval", "1m").replace("$instance", ".+") for text in panels]
    return [*written, *(rule.expr for rule in rules())]


def selectors(node: object) -> Iterator[promql_parser.VectorSelector]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    if isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from selectors(argument)
    for part in ("expr", "lhs", "rhs", "vector_selector", "vs"):
        if (inner := getattr(node, part, None)) is not None:
            yield from selectors(inner)


@pytest.fixture
async def exposed(anyio_backend) -> dict[str, set[str]]:
    """The names of a server's samples, each with its labels: it served, was cold, cut and queued."""
    models = simulation.catalog(
        simulation.model("a", options={"load_seconds": 0.1, "seconds_per_batch": 1.0})
    )
    async with simulation.engine(models) as engine:
        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(engine.submit, simulation.request("a", *["words"] * 20, id=f"q{n}"))
            await anyio.sleep(1.5)
            waiting = engine.metrics().decode()
        after = engine.metrics().decode()
    found: dict[str, set[str]] = {"up": {"job", "instance"}}
    for text in (waiting, after):
        for family in text_string_to_metric_families(text):
            found.setdefault(f"{family.name}_total" if family.type == "counter" else family.name, set())
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


async def test_every_expression_asks_for_metrics_and_labels_that_a_server_has(exposed):
    wrong = []
    for text in expressions():
        asked = list(selectors(promql_parser.parse(text)))
        assert asked, text
        for one in asked:
            labels = {matcher.name for matcher in one.matchers.matchers} - {"instance"}
            # A metric that has not counted yet shows no labels.
            known = exposed.get(one.name)
            if known is None or (known and not labels <= known):
                wrong.append((one.name, labels, text))

    assert wrong == []


def test_every_alert_says_how_bad_it_is_and_what_to_do():
    assert {rule.labels.get("severity") for rule in rules()} <= {"critical", "warning", "info"}
    assert all({"summary", "description"} == set(rule.annotations) for rule in rules())
    assert len({rule.alert for rule in rules()}) == len(rules()) == 8


def test_the_panels_have_names_of_their_own_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}

    assert len(panels) == len(places) == len({p["id"] for p in panels}) == len({p["title"] for p in panels})
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text("utf-8"))
    assert {panel["datasource"]["uid"] for panel in panels} == {source["datasources"][0]["uid"]}


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cuda.yaml"])
def test_compose_files_follow_their_schema(name):
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / name]

    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_what_compose_mounts_is_here():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    mounted = [v.split(":")[0] for s in services.values() for v in s["volumes"] if v.startswith("./")]

    assert len(mounted) == 3
    assert [path for path in mounted if not (DEPLOY / path).is_dir()] == []


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfiles_have_nothing_to_complain_of(name):
    done = subprocess.run([BIN / "hadolint", DEPLOY / name], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", [*DOCKERFILES, "compose.yaml", "serai.service"])
def test_every_variable_that_is_set_is_a_setting(name):
    said = (DEPLOY / name).read_text("utf-8")
    named = set(re.findall(r"(?:^|[\s=])(SERAI_[A-Z_]+)[=:]", said, re.MULTILINE))

    assert named and named <= SETTINGS


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_has_what_its_build_copies_and_the_extras_it_asks_for(name):
    said = (DEPLOY / name).read_text("utf-8")
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[0] == "!"]
    extras = re.search(r"\.\[([a-z,]+)\]", said)
    project = (ROOT / "pyproject.toml").read_text("utf-8")

    assert extras and all(re.search(rf"^{extra} = ", project, re.MULTILINE) for extra in extras[1].split(","))
    assert [path for path in kept if not (ROOT / path).exists()] == []
    assert {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"} <= set(kept)
    assert not re.search(r"^FROM \S+:latest|^FROM [^:\s]+( |$)", said, re.MULTILINE)
    assert re.search(r"^USER \d+:\d+$", said, re.MULTILINE)


def unit() -> dict[str, str]:
    lines = (DEPLOY / "serai.service").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_unit_waits_longer_than_a_drain():
    assert float(unit()["TimeoutStopSec"]) > Settings().drain_limit
    grace = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["serai"]
    assert float(grace["stop_grace_period"].removesuffix("s")) > Settings().drain_limit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_the_unit_as_it_is(tmp_path):
    there = tmp_path / "serai.service"
    said = (DEPLOY / "serai.service").read_text("utf-8")
    there.write_text(said.replace("/opt/serai/.venv/bin/serai", "/bin/true"), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", there], capture_output=True, text=True, check=False)

    assert [line for line in done.stderr.splitlines() if "serai" in line] == []
    assert done.returncode == 0
