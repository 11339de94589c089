"""The digital twin: the engine's own two cores on a clock that jumps, with times drawn from what was seen."""
