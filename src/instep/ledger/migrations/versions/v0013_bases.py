"""Revisions of documents, and the file in which those up to one of them are."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
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
    """Rows that are there were written before all others."""
    op.add_column("documents", sa.Column("revision", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.create_table(
        "manifests",
        sa.Column("instance", sa.String(length=36), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.String(length=36), nullable=True),
        sa.Column("base_revision", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("instance", name=op.f("manifests_pk")),
        **_OPTIONS,
    )
