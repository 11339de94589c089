"""Every action is on disk before it begins, and how it ended after; each makes a new version of its model."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import anyio

from engine.actors.actor import Address, Mailbox
from engine.actors.state_messages import Conclude, History, Intend, StateMessage
from engine.errors import EngineError, StateChanged
from engine.events import Acted
from engine.wishes import Audited, Kept

log = logging.getLogger(__name__)
T = TypeVar("T")

REMEMBERED = 1000
"""Actions of which can be told what they changed since a version. Older versions are told just that."""


@dataclass(frozen=True, slots=True)
class Deed:
    """Who does what to what, and why. `model` is what gets a new version by it."""

    action: str
    target: str
    model: str
    who: str
    reason: str = ""


class Audit:
    """A model's version is the number of the last action on it that was begun. It grows over restarts."""

    def __init__(
        self,
        state: Mailbox[StateMessage] | None,
        last: int,
        how: Callable[[str, str], str],
        recorder: Address[Acted] | None = None,
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._first = last
        self._how = how
        self._numbers = itertools.count(last + 1)
        self._versions: dict[str, int] = {}
        self._recent: deque[tuple[int, Deed]] = deque(maxlen=REMEMBERED)
        self.acted = 0
        """Grows with each act that begins or ends: whoever shows the history looks again by it."""

    def version(self, model: str) -> int:
        return self._versions.get(model, self._first)

    def begin(self, deed: Deed, based_on: int | None = None) -> None:
        """A new version from now on: of two who act on the same one, the second is refused.

        Raises StateChanged with what was done since, when `based_on` is not the model's version.
        """
        if based_on is not None and based_on != self.version(deed.model):
            raise self._changed(deed.model, based_on)
        number = self._versions[deed.model] = next(self._numbers)
        self._recent.append((number, deed))
        self.acted += 1

    def _changed(self, model: str, based_on: int) -> StateChanged:
        version = self.version(model)
        since = [deed for number, deed in self._recent if number > based_on and deed.model == model]
        told = [{"who": deed.who, "action": deed.action, "reason": deed.reason} for deed in since]
        said = "; ".join(f"{deed.action} by {deed.who}" for deed in since) or "before this server can say"
        text = f"{model} is at version {version}, not {based_on}: {said}. Look again before you act."
        return StateChanged(text, version=version, changes=told)

    async def of(self, deed: Deed, do: Callable[[], Awaitable[T]], kept: Kept | None = None) -> T:
        """Do what was begun. `kept` is what lasts when it is done, over restarts too.

        Raises EngineError; where something breaks that nobody foresaw, the log says what.
        """
        if self._state is None:
            done = await self._done(deed, do)
            self._tell(deed, "ok")
            return done
        intent = await self._state.ask(
            Intend,
            who=deed.who,
            action=deed.action,
            target=deed.target,
            reason=deed.reason,
            before=self._how(deed.model, deed.target),
        )
        try:
            outcome = await self._done(deed, do)
        except EngineError as error:
            await self._conclude(intent, deed, error.code, None)
            raise
        await self._conclude(intent, deed, "ok", kept)
        return outcome

    async def note(self, deed: Deed, do: Callable[[], Awaitable[T]]) -> T:
        """Begin and do what nobody bases on a version."""
        self.begin(deed)
        return await self.of(deed, do)

    async def _done(self, deed: Deed, do: Callable[[], Awaitable[T]]) -> T:
        try:
            return await do()
        except EngineError:
            raise
        except Exception:  # it would end the engine; and an act that broke has ended too
            log.exception("%s of %s broke", deed.action, deed.target)
            raise EngineError from None

    def _tell(self, deed: Deed, outcome: str) -> None:
        """For recordings: what operators changed is why traffic went differently from then on."""
        if self._recorder is not None:
            how = self._how(deed.model, deed.target)
            acted = Acted(deed.who, deed.action, deed.target, anyio.current_time(), outcome, deed.reason, how)
            self._recorder.tell(acted)

    async def history(self, limit: int, target: str | None) -> list[Audited]:
        """The newest first; nothing where there is no disk."""
        if self._state is None:
            return []
        return await self._state.ask(History, limit=limit, target=target)

    async def _conclude(self, intent: int, deed: Deed, outcome: str, kept: Kept | None) -> None:
        assert self._state is not None
        after = self._how(deed.model, deed.target)
        await self._state.ask(Conclude, intent=intent, who=deed.who, outcome=outcome, after=after, kept=kept)
        self._tell(deed, outcome)
        self.acted += 1
