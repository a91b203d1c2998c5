"""Jobs: acquired, run in waves by workers, recovered, finished and promoted."""
