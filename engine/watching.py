"""Looks at the catalogue's files again and again, and has them read when they have changed."""

from __future__ import annotations

import logging
from functools import partial

import anyio

from engine.catalog import stamp
from engine.errors import EngineError
from engine.offload import Offload
from engine.operators import Operators
from engine.units import Units

log = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between looks. Files are read once they were the same twice: nobody is writing them then."""

WHO = "catalogue file"


async def watch(units: Units, operators: Operators, opening: Offload) -> None:
    tried = last = units.catalog.stamp
    while True:
        await anyio.sleep(EVERY)
        try:
            seen = await opening(partial(stamp, units.catalog.directories))
            if seen == last and seen not in (tried, units.catalog.stamp):
                tried = seen
                await operators.reload_catalog(WHO)
            last = seen
        except EngineError as error:
            log.error("the catalogue's files have changed, and cannot be used: %s", error)
        except Exception:  # what is wrong with files ends nothing
            log.exception("the catalogue's files cannot be watched")
