"""Plans: what is new, changed or gone, cut into slices."""
