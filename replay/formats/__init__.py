"""Forms in which others publish traffic, each read into a `Trace`."""
