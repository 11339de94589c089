"""How much one caller may ask for, and how long one who guesses passwords must wait. Pure: `now` comes in."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from engine.access.principals import Principal

LONGEST_WAIT = 86_400.0
"""Seconds that a caller is told to wait at most: clients keep no date that is years away."""


@dataclass(slots=True)
class Bucket:
    """Tokens that come back at `rate` a second, `burst` at most; a request takes one."""

    rate: float
    burst: int
    level: float
    at: float

    def take(self, now: float) -> float:
        """Take one token: 0.0, or the seconds after which there will be one."""
        if now > self.at:
            self.level = min(float(self.burst), self.level + (now - self.at) * self.rate)
            self.at = now
        if self.level >= 1.0:
            self.level -= 1.0
            return 0.0
        return min(LONGEST_WAIT, (1.0 - self.level) / self.rate)


class Gate:
    """What each principal has in flight, and what is left of its rate."""

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}
        self._in_flight: dict[str, int] = {}

    def enter(self, principal: Principal, now: float) -> float:
        """0.0 when the request may go on, which `leave` ends; else the seconds to wait before another try."""
        limits, running = principal.limits, self._in_flight.get(principal.id, 0)
        if limits.concurrency is not None and running >= limits.concurrency:
            return 1.0  # whoever is in flight leaves when it is done; nobody knows when
        if limits.rate is not None and (wait := self._bucket(principal, limits.rate, now).take(now)):
            return wait
        self._in_flight[principal.id] = running + 1
        return 0.0

    def leave(self, principal: Principal) -> None:
        left = self._in_flight[principal.id] - 1
        if left:
            self._in_flight[principal.id] = left
        else:
            del self._in_flight[principal.id]

    def in_flight(self, principal: Principal) -> int:
        return self._in_flight.get(principal.id, 0)

    def _bucket(self, principal: Principal, rate: float, now: float) -> Bucket:
        bucket, burst = self._buckets.get(principal.id), principal.limits.burst
        if bucket is None or (bucket.rate, bucket.burst) != (rate, burst):
            bucket = self._buckets[principal.id] = Bucket(rate, burst, float(burst), now)
        return bucket


FREE_TRIES = 3
"""Mistakes that cost nothing: people mistype."""
FORGET = 3600.0
"""Seconds without a mistake after which all are forgotten."""


class Backoff:
    """Seconds to wait after wrong passwords: one, doubled by each further mistake, up to `longest`."""

    def __init__(self, longest: float, most: int = 10_000) -> None:
        self._longest = longest
        self._most = most
        self._mistakes: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait(self, who: str, now: float) -> float:
        """Seconds before `who` may try again; 0.0 is at once."""
        count, last = self._mistakes.get(who, (0, 0.0))
        if count <= FREE_TRIES or now - last >= FORGET:
            return 0.0
        pause = min(self._longest, 2.0 ** min(count - FREE_TRIES - 1, 60))
        return max(0.0, pause - (now - last))

    def mistake(self, who: str, now: float) -> None:
        count, last = self._mistakes.pop(who, (0, now))
        self._mistakes[who] = (count + 1 if now - last < FORGET else 1, now)
        while len(self._mistakes) > self._most:
            self._mistakes.popitem(last=False)

    def right(self, who: str) -> None:
        self._mistakes.pop(who, None)
