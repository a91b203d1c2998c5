"""What is done with a pending queue: made, filled, compared, read from, and looked at."""
