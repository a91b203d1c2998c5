"""Losses of parts of jobs without a request, and sources that could not be listed as a whole."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
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
    for name in ("lost_units", "lost_rows"):
        op.add_column("job_parts", sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("job_parts", sa.Column("allowed", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "listing_problems",
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("ref", name=op.f("listing_problems_pk")),
        **_OPTIONS,
    )
