"""What keeps the demo from going on, and what to do about it."""

from __future__ import annotations


class DemoFailed(Exception):
    """Its message is for whoever runs the demo: what is wrong and what to run."""
