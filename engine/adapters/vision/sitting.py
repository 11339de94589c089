"""Work that stops between two of its steps and goes on later, though the library that does it knows no stop.

It has a thread of its own, and only one of the two threads runs at a time: whoever lets it go on waits until
it stops. So beam search of transformers, whose state is in its frames, can be done by quanta.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Semaphore, Thread

import torch

Pause = Callable[[], None]
"""Called by the work where it may stop."""


class GivenUp(BaseException):
    """Nobody wants the work any more; it ends here."""


class Sitting:
    """`go` and `give_up` are called by one thread at a time."""

    def __init__(self, work: Callable[[Pause], None]) -> None:
        self._work = work
        self._thread = Thread(target=self._run, name="sitting", daemon=True)
        self._go, self._stopped = Semaphore(0), Semaphore(0)
        self._ends = 0.0
        self._given_up = False
        self._error: BaseException | None = None
        self._stream: torch.cuda.Stream | None = None
        self.done = False

    def go(self, ends: float) -> bool:
        """Go on until about `ends`, on the clock of `time.perf_counter`, but by one step at least; whether it
        is done. Raises what the work raised."""
        self._ends = ends
        self._stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._stopped.acquire()
        if self._error is not None:
            raise self._error
        return self.done

    def give_up(self) -> None:
        """Its thread ends, and lets go of what it held."""
        self._given_up = True
        if self._thread.ident is not None and not self.done:
            self._go.release()
            self._thread.join()

    def _run(self) -> None:
        try:
            self._begin()
            self._work(self._pause)
        except GivenUp:
            pass
        except BaseException as error:
            self._error = error
        self._settle()
        self.done = True
        self._stopped.release()

    def _pause(self) -> None:
        if time.perf_counter() < self._ends:
            return
        self._settle()
        self._stopped.release()
        self._go.acquire()
        if self._given_up:
            raise GivenUp
        self._begin()

    def _begin(self) -> None:
        """On the stream of whoever lets it go on."""
        if self._stream is not None:
            torch.cuda.set_stream(self._stream)

    def _settle(self) -> None:
        """What was begun on the device has ended: it may go on from another stream."""
        if self._stream is not None and self._error is None:
            self._stream.synchronize()
