"""Traffic sent again, at the moments at which it came: to an engine here, or to whoever can be asked."""
