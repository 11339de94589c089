"""Everything that can go wrong for a caller: a short closed list, each with a code that clients match on.

The HTTP status of each lives in one table at the edge. A failure crosses to another process as
`Failure`, plain data, and comes back as the same class.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec


class Failure(msgspec.Struct, frozen=True):
    """An error as plain data, so that a runner may be another process."""

    kind: str
    message: str
    item: int | None = None
    retry_after: float | None = None
    details: dict[str, Any] = {}

    def error(self) -> EngineError:
        """The error again, as the class that it was."""
        made = KINDS.get(self.kind, EngineError)(self.message, item=self.item, **self.details)
        made.retry_after = self.retry_after
        return made


class EngineError(Exception):
    """Something inside the engine broke; the server's log has more."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    retry_after: float | None = None
    """Seconds after which trying again makes sense; None when it does not."""

    def __init__(self, message: str | None = None, *, item: int | None = None, **details: Any) -> None:
        super().__init__(message or type(self).__doc__)
        self.item = item
        """Index of the item that was wrong, where one was."""
        self.details = details

    @property
    def message(self) -> str:
        return str(self)

    def after(self, seconds: float) -> Self:
        """The same error, worth another try after `seconds`."""
        self.retry_after = max(0.0, seconds)
        return self

    def at(self, item: int) -> Self:
        """The same error, said of the item at index `item`."""
        self.item = item
        return self

    def failure(self) -> Failure:
        return Failure(type(self).__name__, self.message, self.item, self.retry_after, self.details)


class InvalidInput(EngineError):
    """The request cannot be understood; mend it before sending it again."""

    code = "INVALID_INPUT"


class InputTooLong(EngineError):
    """One input is longer than the model takes."""

    code = "INPUT_TOO_LONG"


class ImageTooLarge(InputTooLong):
    """An image has more bytes than one may. Details: `length`, `max_length`."""

    code = "IMAGE_TOO_LARGE"


class BodyTooLarge(EngineError):
    """The request's body is larger than this server takes."""

    code = "INPUT_TOO_LONG"


class UnknownModel(EngineError):
    """The catalogue has no such model."""

    code = "MODEL_NOT_FOUND"


class WeightsUnavailable(EngineError):
    """The model is known, but no source here has its weights."""

    code = "WEIGHTS_UNAVAILABLE"


class LoadFailed(EngineError):
    """The model could not be loaded. Details: `error_class`, `attempts`, `permanent`."""

    code = "MODEL_LOAD_FAILED"


class StillLoading(EngineError):
    """The model is still loading; try again shortly."""

    code = "MODEL_LOADING"


class QueueFull(EngineError):
    """No room for another request now; try again later."""

    code = "QUEUE_FULL"


class Paused(EngineError):
    """An operator has paused this model; it will be resumed."""

    code = "MODEL_PAUSED"
    retry_after = 5.0


class StillBusy(EngineError):
    """What was to end before this could be done has not ended in time. Details: `left`."""

    code = "MODEL_BUSY"


class StateChanged(EngineError):
    """Somebody else has acted since you looked; look again. Details: `version`, `changes`."""

    code = "STATE_CHANGED"


class CatalogRejected(EngineError):
    """The catalogue's files cannot be used as they are; nothing was changed. Details: `complaints`."""

    code = "CATALOG_INVALID"


class ResourceExhausted(EngineError):
    """There is not enough free memory to run this input now."""

    code = "RESOURCE_EXHAUSTED"


class NoRoom(EngineError):
    """The model cannot be made resident beside what is pinned."""

    code = "INSUFFICIENT_MEMORY"


class DeadlineExceeded(EngineError):
    """The caller's own deadline passed before the work was done."""

    code = "DEADLINE_EXCEEDED"


class Forbidden(EngineError):
    """This server does not take such a request from where it came."""

    code = "FORBIDDEN"


class Unauthorized(EngineError):
    """This server wants an API key: send it as `Authorization: Bearer ...`, or as `x-api-key`."""

    code = "UNAUTHORIZED"


class RateLimited(EngineError):
    """This key asks for more than it may at once; try again later."""

    code = "RATE_LIMITED"


class UnknownPrincipal(EngineError):
    """There is no such key or user."""

    code = "NOT_FOUND"


class UnknownRecording(EngineError):
    """There is no such recording."""

    code = "NOT_FOUND"


class UnknownFile(EngineError):
    """There is no such file or batch, or it belongs to somebody else."""

    code = "NOT_FOUND"


class StorageFull(EngineError):
    """There is no room on disk for this."""

    code = "STORAGE_FULL"


class InferenceFailed(EngineError):
    """The model failed on this input."""

    code = "INFERENCE_ERROR"


class NotFinite(InferenceFailed):
    """The model's result for this input is not a finite number."""


class RunnerCrashed(EngineError):
    """The runner that held this request died; the request may be sent again."""

    code = "INFERENCE_ERROR"


class Stopped(EngineError):
    """The server is stopping; another instance, or this one after its restart, will answer."""

    code = "QUEUE_FULL"
    retry_after = 1.0


def _kinds(root: type[EngineError]) -> dict[str, type[EngineError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _kinds(child)
    return found


KINDS = _kinds(EngineError)
