"""Alembic's entry point. `schema.upgrade` hands over the connection and owns the transaction."""

from __future__ import annotations

from alembic import context

from instep.ledger.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
context.run_migrations()
