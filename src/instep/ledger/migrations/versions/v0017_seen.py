"""The state of tables as runs have seen it, in place of the time of the last run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
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
        "seen",
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("generation", sa.String(length=100), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("instance", sa.String(length=36), nullable=False),
        sa.Column("body", sa.LargeBinary(length=2**32 - 1), nullable=False),
        sa.Column("late", sa.Text()),
        sa.PrimaryKeyConstraint("ref", "generation", "job_id", name=op.f("seen_pk")),
        **_OPTIONS,
    )
