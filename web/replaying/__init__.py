"""Servers as targets of a replay, and the page that tells of one."""
