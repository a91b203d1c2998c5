"""The ledger in a SQL database, through SQLAlchemy Core.

`ledger.SqlLedger` opens the transactions; the other modules, one per noun, say what happens in them.
What differs between databases is behind `dialect.SqlDialect`.

Rows that decide something are locked first (`FOR UPDATE`; SQLite ignores that, its writers stand in
line from BEGIN IMMEDIATE on), always in the order job, lease, part, slices, so that two transactions
do not wait for each other. Every write about a slice is guarded by (id, fence, worker).
"""
