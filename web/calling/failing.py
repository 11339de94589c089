"""Why a call from the command line came to nothing."""

from __future__ import annotations


class CallFailed(Exception):
    """One line, for whoever typed the command."""

    def __init__(self, message: str, code: str = "", wait: float | None = None) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.code = code
        self.message = message
        self.wait = wait
        """Seconds after which the same call may be answered; None when it will not be."""
