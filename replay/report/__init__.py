"""What a replay showed, beside what was recorded: figures, charts, one page."""
