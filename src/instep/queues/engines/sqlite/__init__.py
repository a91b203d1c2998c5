"""A pending queue in SQLite, kept by triggers of rows."""

from instep.queues.engines.sqlite.store import SqlitePending

__all__ = ["SqlitePending"]
