"""Removals of documents that are in the base of their instance, which stays."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from instep.ledger.dialects.collations import nopad

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    collation = nopad(op.get_bind())  # As that of the other tables' texts.
    options: dict[str, Any] = {
        f"{kind}_{name}": value
        for kind in ("mysql", "mariadb")
        for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", collation))
    }
    op.create_table(
        "removals",
        sa.Column("instance", sa.String(length=36), nullable=False),
        sa.Column("document_id", sa.String(length=80), nullable=False),
        sa.PrimaryKeyConstraint("instance", "document_id", name=op.f("removals_pk")),
        sqlite_with_rowid=False,
        **options,
    )
