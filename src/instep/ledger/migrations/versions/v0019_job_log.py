"""The log of a job: its phases, and what its workers said of it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from instep.ledger.dialects.collations import nopad

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # It refers to a table that has this collation since an earlier migration.
    collation = nopad(op.get_bind())
    options: dict[str, Any] = {
        f"{kind}_{name}": value
        for kind in ("mysql", "mariadb")
        for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", collation))
    }
    op.create_table(
        "job_log",
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("worker_id", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("job_log_job_id_fk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("job_log_pk")),
        **options,
    )
