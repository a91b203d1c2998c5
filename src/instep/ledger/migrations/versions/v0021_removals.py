"""Removals of documents that are in the base of their instance, which stays."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.ledger.dialects.collations import table_options

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "removals",
        sa.Column("instance", sa.String(length=36), nullable=False),
        sa.Column("document_id", sa.String(length=80), nullable=False),
        sa.PrimaryKeyConstraint("instance", "document_id", name=op.f("removals_pk")),
        sqlite_with_rowid=False,
        **table_options(op.get_bind()),
    )
