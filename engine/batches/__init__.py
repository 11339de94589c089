"""Files, and batches of calls that stand in them, one a line."""
