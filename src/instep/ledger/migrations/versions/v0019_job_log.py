"""The log of a job: its phases, and what its workers said of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.ledger.dialects.collations import table_options

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
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
        **table_options(op.get_bind()),
    )
