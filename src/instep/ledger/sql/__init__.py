"""The ledger in a SQL database, through SQLAlchemy Core.

`ledger.SqlLedger` opens the transactions; the other modules, one per noun, say what happens in them.
What differs between databases is behind `dialect.SqlDialect`.

Rows that decide something are locked first (`FOR UPDATE`; SQLite ignores that, its writers stand in
line from BEGIN IMMEDIATE on): the job, then its leases and parts, then workers, then slices in the order
of one index, then the head of the log of events, so that two transactions hardly ever wait for each other.
If they do, the database gives one of them up, and that is tried again. Every write about a slice is guarded
by (id, fence, worker).
"""
