"""Many small models, one card, one queue."""

__version__ = "0.1.0"
