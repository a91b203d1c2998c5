"""Telemetry: traces, structured logs and counters of the work."""
