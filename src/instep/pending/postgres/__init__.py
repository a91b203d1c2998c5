"""A pending queue in PostgreSQL, kept by triggers of statements."""

from instep.pending.postgres.store import PostgresPending

__all__ = ["PostgresPending"]
