"""Bodies in, bodies out: pure functions between bytes and the engine's own types."""
