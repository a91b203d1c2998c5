"""Progress of waves that have not ended, and the pace of those that have."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
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
    op.add_column("job_workers", sa.Column("slice_id", sa.String(length=80)))
    op.add_column("job_workers", sa.Column("units", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.create_table(
        "paces",
        sa.Column("entity", sa.String(length=100), nullable=False),
        sa.Column("how", sa.String(length=80), nullable=False),
        sa.Column("engine", sa.String(length=16), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("work", sa.BigInteger(), nullable=False),
        sa.Column("milliseconds", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.PrimaryKeyConstraint("entity", "how", "engine", name=op.f("paces_pk")),
        **_OPTIONS,
    )
