"""Up to when, and to which epoch, jobs of each partition were forgotten."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
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
        "forgotten",
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("target", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("ref", name=op.f("forgotten_pk")),
        **_OPTIONS,
    )
