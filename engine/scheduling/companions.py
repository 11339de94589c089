"""Which unit is asked for soon after which, within a session: learned while serving, to load ahead. Pure."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

WITHIN = 30.0
"""Seconds in which a unit follows another."""

HALF_LIFE = 3600.0
"""Seconds in which what was seen comes to count half."""

SHARE = 0.5
"""Of the recent uses of a unit, after which another one followed: from here on it is expected."""

LEAST = 2.5
"""And it followed so often: three times, of which a little has faded."""

MOST_SESSIONS = 10_000
MOST_USES = 8
"""Uses of one session that are remembered: what is followed by more than that is followed by anything."""


@dataclass(slots=True)
class _Fading:
    """A count that halves every `HALF_LIFE`."""

    count: float = 0.0
    at: float = 0.0

    def now(self, now: float) -> float:
        return self.count * math.exp2((self.at - now) / HALF_LIFE)

    def add(self, now: float) -> None:
        self.count, self.at = self.now(now) + 1.0, now


@dataclass(slots=True)
class _Use:
    """A session's requests for one unit, without another one's between them."""

    unit: str
    at: float
    followed: set[str] = field(default_factory=set)


class Companions:
    def __init__(self) -> None:
        self._sessions: OrderedDict[str, list[_Use]] = OrderedDict()
        self._uses: dict[str, _Fading] = {}
        self._follows: dict[str, dict[str, _Fading]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def on_request(self, session: str, unit: str, now: float) -> list[str]:
        """Learn from this request, and say which units are likely to be asked for next."""
        expected = self._expected(unit, now)
        recent = [use for use in self._sessions.pop(session, ()) if now - use.at <= WITHIN]
        self._sessions[session] = recent
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        if recent and recent[-1].unit == unit:
            recent[-1].at = now
            return expected
        for use in recent:
            if use.unit != unit and unit not in use.followed:
                use.followed.add(unit)
                self._follows.setdefault(use.unit, {}).setdefault(unit, _Fading()).add(now)
        self._uses.setdefault(unit, _Fading()).add(now)
        recent.append(_Use(unit, now))
        del recent[:-MOST_USES]
        return expected

    def forget(self, unit: str) -> None:
        """It is gone; nobody will ask for it."""
        self._uses.pop(unit, None)
        self._follows.pop(unit, None)
        for follows in self._follows.values():
            follows.pop(unit, None)

    def _expected(self, unit: str, now: float) -> list[str]:
        """Judged by uses that had their time: the one that is beginning counts for nothing yet."""
        if unit not in self._uses:
            return []
        uses = self._uses[unit].now(now)
        seen = {other: count.now(now) for other, count in self._follows.get(unit, {}).items()}
        return [other for other, count in seen.items() if count >= LEAST and count >= SHARE * uses]
