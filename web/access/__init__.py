"""Who asks, and whether they may: keys, sessions, and what each route needs."""
