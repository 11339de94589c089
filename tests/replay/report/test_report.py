"""A report says what was measured, beside what was recorded, and whether it may be believed."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest

from engine.requests import ServiceClass
from replay.answers import Answers
from replay.groups import groups_of
from replay.recording import Recording
from replay.replaying.log import Log
from replay.replaying.target import Look, Outcome
from replay.report import charts, figures, report
from replay.report.report import About
from replay.trace import Trace
from web.replaying import page

ABOUT = About(
    "monday", "http://x", "2026-01-01 10:00", "0.1", 7, {"load": "2 times, by dup"}, ("a note <b>",)
)


def answers(latency, models=None, queue=0.0, load=0.0, classes=None, outcomes=None) -> Answers:
    count = len(latency)
    told = np.asarray(latency, dtype=float)
    return Answers.of(
        models=models or ["a"] * count,
        service_class=np.array(classes or [1] * count, dtype=np.int8),
        arrived=np.arange(count, dtype=float),
        latency=told,
        prepare=np.zeros(count),
        queue=np.full(count, queue),
        load=np.full(count, load),
        run=np.where(np.isfinite(told), told - queue - load, 0.0),
        outcomes=outcomes or ["ok" if math.isfinite(x) else "QUEUE_FULL" for x in told],
        cold=np.zeros(count, dtype=bool),
    )


def target(model: str, service_class: ServiceClass) -> float:
    return 0.2 if service_class is ServiceClass.INTERACTIVE else 2.0


def test_each_model_and_class_has_its_own_figures_the_worst_first():
    both = answers(
        [0.1] * 99 + [0.15] + [1.0] * 97 + [3.0] * 3,
        models=["a"] * 100 + ["b"] * 100,
        classes=[0] * 100 + [1] * 100,
        queue=0.05,
    )
    first, second = figures.as_rows(groups_of(both, target), span=100.0)

    assert (first["model"], first["service_class"], first["p50"], first["p99"]) == ("b", "standard", 1.0, 3.0)
    assert (first["holds"], first["within"], first["goodput"], first["stage"]) == (False, 0.97, 0.97, "run")
    assert (second["model"], second["p99"], second["holds"]) == ("a", 0.1, True)
    assert second["shares"]["queue"] == pytest.approx(0.05 / second["stages"]["run"] / 2, rel=0.02)


def test_what_is_refused_is_late_and_named():
    (group,) = groups_of(answers([0.1] * 90 + [math.inf] * 10), target)
    assert group.p99 == math.inf and group.refused == pytest.approx(0.1) and group.stage == "refused"


def test_few_requests_are_not_judged():
    (group,) = groups_of(answers([9.0] * 5), target)
    assert not group.judged and group.holds


def log_of(latency: list[float], lag: float = 0.0) -> Log:
    count = len(latency)
    trace = Trace.of("t", np.arange(count), models=["a"] * count, input_size=[5] * count)
    log = Log(trace, begin=10.0)
    log.intended[:] = 10.0 + np.arange(count)
    log.sent[:] = log.intended + lag
    log.done[:] = log.intended + latency
    log.outcomes = [Outcome("ok", 0.0, 0.01, 0.0, x - 0.01, output_tokens=1) for x in latency]
    devices = [
        {"name": "cuda:0", "used_bytes": n * 2**30, "budget_bytes": 16 * 2**30, "slots": 2, "busy_seconds": n}
        for n in (1, 3, 2)
    ]
    log.looks = [(float(10 * n), Look([device], {"a": n})) for n, device in enumerate(devices)]
    log.ended = 10.0 + count
    return log


class Whole(HTMLParser):
    """Every tag is closed; and nothing is fetched from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "action")]

    def handle_startendtag(self, tag, attrs):
        pass  # closed already

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_is_one_page_and_json_with_both_sides():
    recorded = answers([0.2] * 100)
    made = report.of(
        log_of([0.1] * 100), ABOUT, target, shares_process=False, recording=_nothing(), original=recorded
    )
    html = page.render(made)
    whole = Whole()
    whole.feed(html)

    assert whole.open == [] and whole.fetched == []
    assert "The run counts" in html and "a note &lt;b&gt;" in html.replace("A note", "a note")
    assert "100.0 ms" in html and '<span class="was">200.0 ms</span>' in html
    found = json.loads(json.dumps(made.as_json()))
    assert found["replayed"]["groups"][0]["p50"] == 0.1 and found["recorded"]["groups"][0]["p50"] == 0.2
    (device,) = found["replayed"]["devices"]
    assert device["peak_bytes"] == 3 * 2**30 and device["busy_share"] == pytest.approx((2 - 1) / 20 / 2)
    assert found["replayed"]["loads"] == {"a": 2}
    assert "900.0" not in found["replayed"]["peaks"]  # longer than all of it
    assert found["charts"][0]["title"] == "Arrivals"


def test_a_void_run_says_so_before_any_figure():
    made = report.of(log_of([0.1] * 100, lag=0.5), ABOUT, target, shares_process=False)
    html = page.render(made)

    assert made.void and made.as_json()["sending"]["void"]
    assert html.index("This run is void") < html.index("By model and class")


def test_nothing_sent_is_a_report_too():
    log = log_of([0.1, 0.1])
    log.sent[:], log.intended[:] = np.nan, np.nan
    made = report.of(log, ABOUT, target, shares_process=False)
    assert made.void == ("nothing was sent",) and "void" in page.render(made)


@pytest.mark.parametrize(("value", "wanted"), [(0.13, 0.2), (7, 8), (40, 40), (81, 100), (0, 1)])
def test_scales_end_at_numbers_that_can_be_read(value, wanted):
    assert charts.nice(value) == pytest.approx(wanted)


def test_a_line_stays_inside_its_chart():
    chart = charts.lines("t", "s", [("x", [0.0, 5.0, 10.0], [0.0, 3.0, 1.0]), ("none", [], [])])
    (series,) = chart.series
    points = [tuple(map(float, point.split(","))) for point in series.points.split()]
    assert all(chart.left <= x <= chart.right and chart.top <= y <= chart.bottom for x, y in points)
    assert points[0] == (chart.left, chart.bottom)


def _nothing() -> Recording:
    return Recording("r", 0.0, 1.0, 0, "stopped", {}, {"at": np.zeros(1)}, {}, (), (), (), 0)
