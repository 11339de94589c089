"""Models that the catalogue does not know: an entry made of what their repositories say of themselves."""
