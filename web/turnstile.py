"""So many requests begin and end in one turn of the event loop; the others wait in line, probes before all.

A burst is otherwise begun within one turn, and all of a batch answered within one, however long that takes:
more has come when it is over, and nobody else is answered meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque

from aiohttp import web
from aiohttp.typedefs import Handler

from web.ended import PROBES

EACH_TURN = 16
"""Requests; beginning one, or sending one answer, takes about a sixth of a millisecond."""


class Turnstile:
    """Of one event loop."""

    def __init__(self) -> None:
        self._passed = 0
        self._turning = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def pass_through(self) -> None:
        """Returns in the order of the calls."""
        if self._waiting or self._passed == EACH_TURN:
            mine = asyncio.get_running_loop().create_future()
            self._waiting.append(mine)
            await mine
            return
        self._passed += 1
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Once a turn while anybody comes."""
        self._turning, self._passed = bool(self._passed), 0
        while self._waiting and self._passed < EACH_TURN:
            if not (first := self._waiting.popleft()).done():  # whoever left is out of the line
                first.set_result(None)
                self._passed += 1
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)


WAY_IN: web.AppKey[Turnstile] = web.AppKey("way_in", Turnstile)
WAY_OUT: web.AppKey[Turnstile] = web.AppKey("way_out", Turnstile)


@web.middleware
async def paced(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Probes ask whether the server answers, not how many others it has to answer."""
    if request.path in PROBES:
        return await handler(request)
    await request.app[WAY_IN].pass_through()
    response = await handler(request)
    await request.app[WAY_OUT].pass_through()
    return response
