"""Messages of other programs, and the keys under which the state of each partition is told."""
