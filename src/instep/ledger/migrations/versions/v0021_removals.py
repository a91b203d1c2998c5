"""Removals of documents that are in the base of their instance, which stays."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    op.create_table(
        "removals",
        sa.Column("instance", sa.String(length=36), nullable=False),
        sa.Column("document_id", sa.String(length=68), nullable=False),
        sa.PrimaryKeyConstraint("instance", "document_id", name=op.f("removals_pk")),
        sqlite_with_rowid=False,
        **_OPTIONS,
    )
