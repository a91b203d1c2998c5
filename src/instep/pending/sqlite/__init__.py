"""A pending queue in SQLite, kept by triggers of rows."""

from instep.pending.sqlite.store import SqlitePending

__all__ = ["SqlitePending"]
