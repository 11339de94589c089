"""A server asked from the command line: bodies from texts and files, one call, or a call a line."""
