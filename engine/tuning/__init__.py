"""What this machine makes of a model: measured, and compared with the libraries that define it."""
