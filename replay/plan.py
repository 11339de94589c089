"""What a plan stands on: the server and the traffic, whence each is, and how far both may be trusted."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from engine import __version__
from engine.requests import ServiceClass
from replay.formats.reading import read
from replay.peaks import when
from replay.recording import Recording, read_database, read_file
from replay.replaying.wanted import WRONG, left_out, used
from replay.report.verdict import lag_limit
from replay.rules import DAY
from replay.trace import BadTrace, Trace, merged
from replay.twin.recorded import Footprints, measured
from replay.twin.server import Server
from replay.twin.timing import Seen
from replay.twin.traffic import Traffic
from replay.validation import Validation, badge

ENDING = ".jsonl.gz"
"""Of a recording's file."""


@dataclass(frozen=True)
class Basis:
    server: Server
    part: Trace
    """The busiest part of `trace`."""
    trace: Trace
    seed: int
    validations: Path
    """Where validations of twins are kept."""

    @cached_property
    def traffic(self) -> Traffic:
        """Of `part`, as the twin is sent it. Raises BadTrace for a model that the server lacks."""
        return Traffic.of(self.part, self.server)

    @property
    def days(self) -> float:
        """How long the trace is."""
        return self.trace.span / DAY

    @property
    def lag_limit(self) -> float:
        """Seconds of p99 send lag above which a run of the traffic on the real engine is void."""
        trace, targets = self.traffic.trace, self.server.target
        asked = {*zip(trace.model.tolist(), trace.service_class.tolist(), strict=True)}
        return lag_limit(min(targets(trace.models[model], ServiceClass(of)) for model, of in asked))

    def keep(self, found: Validation, lag: float) -> Path | None:
        """Where it is kept; None, and it is not, where the sending's lag (p99, in seconds) makes it void."""
        return found.save(self.validations) if lag <= self.lag_limit else None

    def provenance(self, extrapolated: bool) -> dict[str, Any]:
        """By what every figure of a plan can be found again, and how far it may be believed."""
        curves = curves_version(self.server)
        found = Validation.load(self.validations, curves)
        return {
            "trace": self.trace.name,
            "requests": len(self.part),
            "seconds": round(self.part.span, 3),
            "server": self.server.origin,
            "curves": curves,
            "seed": self.seed,
            "serai": __version__,
            "badge": badge(found, now=time.time(), extrapolated=extrapolated).value,
            "validated_at": found.at if found is not None else None,
            "notes": [*self.traffic.notes, *self.server.measured],
            "assumed": [*self.server.assumed],
        }


def basis(
    source: str,
    *,
    measured_by: str | None = None,
    names: Mapping[str, str] | None = None,
    database: Path | None = None,
    hours: float = 1.0,
    sized: tuple[float, float] = (1.0, 1.0),
    seed: int = 0,
    validations: Path = Path(),
    footprints: Footprints = lambda spec: None,
) -> Basis:
    """`source` is a recording, by its name in `database` or by its file, or files of traces by comma.

    A trace says nothing of a server: `measured_by` names a recording that does. Models in `names` are
    taken to be others, inputs and outputs are `sized` times as large. Of the whole, the busiest `hours` are
    what is simulated. Raises BadTrace.
    """
    recorded = _recording(source, database)
    by = _recording(measured_by, database) if measured_by else recorded
    if measured_by and by is None:
        raise BadTrace(f"{measured_by} is no recording.")
    if by is None:
        raise BadTrace(f"{source} says nothing of a server; name a recording of one, with --server.")
    server = measured(by, footprints)
    trace = _asked(recorded) if recorded is not None else merged([read(Path(p)) for p in source.split(",")])
    trace = trace.renamed(names or {})
    trace = trace.sized(*sized)
    if recorded is not None:
        trace = _that_ran(trace, server)
    part = _busiest(trace.spread(seed), hours * 3600)
    found = Basis(server, part, trace, seed, validations)
    found.traffic  # noqa: B018 - says what is wrong with it, if anything is
    return found


def _recording(source: str, database: Path | None) -> Recording | None:
    """None for the file of a trace."""
    if source.endswith(ENDING):
        return read_file(Path(source))
    if all(Path(part).is_file() for part in source.split(",")):
        return None
    if database is None:
        raise BadTrace(f"There is no file {source}.")
    return read_database(database, source)


def _asked(recorded: Recording) -> Trace:
    """Without what no server could have answered, as a replay leaves it out."""
    trace = recorded.trace()
    wrong = recorded.answers().ended(*WRONG)
    left = used(trace.take(~wrong[trace.row]))
    return replace(left, notes=(*left.notes, *left_out(int(wrong.sum()))))


def _that_ran(trace: Trace, server: Server) -> Trace:
    """Without requests for models of which no batch was recorded, or that are in no snapshot: nobody knows
    what they take."""
    ran = [model for model in trace.models if model in server.units]
    if len(ran) == len(trace.models):
        return trace
    left = trace.only(ran)
    gone = sorted({*trace.models} - {*ran})
    note = (
        f"{len(trace) - len(left)} requests are left out, for models of which nothing ran or that the "
        f"recording does not describe: {', '.join(gone)}"
    )
    return replace(used(left), notes=(*left.notes, note))


def _busiest(trace: Trace, seconds: float) -> Trace:
    if trace.span <= seconds:
        return trace
    begin = when(trace.arrived, seconds)
    return trace.between(begin, begin + seconds)


def curves_version(server: Server) -> str:
    """Names the readings that a plan's times are drawn from: the same readings have the same name."""
    learned = [(c.slowed, c.loading, c.handover, c.spells) for c in server.cards]
    digest = hashlib.sha256(repr(learned).encode())
    for name, unit in sorted(server.units.items()):
        digest.update(name.encode())
        for device, timing in sorted(unit.timings.items()):
            digest.update(device.encode())
            if isinstance(timing, Seen):
                for column in (timing.curve.costs, timing.curve.seconds, *timing.curve.scatter):
                    digest.update(np.ascontiguousarray(column).tobytes())
            else:
                digest.update(timing.source.encode())
        digest.update(repr((unit.loads, unit.footprint)).encode())
    return digest.hexdigest()[:12]


def plain(value: Any) -> Any:
    """As JSON may hold it: what is not finite becomes null, what is large stays out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields if field.name != "results"}
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def as_json(basis: Basis, *, extrapolated: bool = False, **found: Any) -> str:
    """The findings with their provenance."""
    return json.dumps(
        {"from": basis.provenance(extrapolated), **{k: plain(v) for k, v in found.items()}}, indent=2
    )
