"""A pending queue in PostgreSQL, kept by triggers of statements."""

from instep.queues.engines.postgres.store import PostgresPending

__all__ = ["PostgresPending"]
