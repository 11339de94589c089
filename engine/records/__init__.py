"""Traffic as it is kept: the tables, the stretches of them that have a name, and those as files."""
