"""What a run tells of itself while it works: traces, structured logs and counters."""
