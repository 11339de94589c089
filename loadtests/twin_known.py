"""The whole of a validation on a device whose law is known, in virtual time: is the method right?

What `loadtests.twin_validation` does with real models, on a simulated device on which batches slow each
other, loads slow both, and times scatter. Nothing on the machine can disturb it, and the same seeds give the
same figures. Half a minute. `python -m loadtests.twin_known`; exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from engine.config import Settings
from engine.parts import Parts
from loadtests.twin_validation import show
from replay.plan import Basis
from replay.realrun import Bench, validate
from replay.twin.recorded import measured
from replay.validation import Validation
from tests.replay.twin.recordings import in_virtual_time, standing_on
from tests.replay.twin.test_known_device import IN_TURN, SETTINGS, Law, models, sent
from tests.simulation import MIB

ROOM = 400 * MIB
"""For all of the models; what is measured has room for two of the three, so that loads are seen."""


def compared(law: Law, count: int) -> tuple[Validation, float]:
    seeds = itertools.count(100)
    server = measured(law.ran(sent(count, law.rate, 1), 1))
    print("; ".join((*server.measured, *server.assumed)))
    trace = law.ran(sent(count, law.rate, 2), 2).trace()
    basis = Basis(server, trace, trace, 0, Path())

    async def opening(settings: Settings, folder: Path) -> Parts:
        slots, memory = settings.slots or len(law.slowed), settings.memory or ROOM
        return standing_on(law.device(slots, memory, next(seeds)), folder)

    settings = SETTINGS.model_copy(update={"memory": ROOM, "slots": len(law.slowed)})
    bench = Bench(settings, models(), opening=opening)
    return in_virtual_time(validate, basis, bench, trace.span + 1, None, print)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--requests", type=int, default=1800)
    given = arguments.parse_args()
    return show(*compared(IN_TURN, given.requests))


if __name__ == "__main__":
    sys.exit(main())
