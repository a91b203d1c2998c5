"""Real servers as processes that are killed, stopped and started again while they work in one job.

`python -m tests.soak --seconds 600` does that for as long as wanted; `make test` for a minute per ledger.
"""
