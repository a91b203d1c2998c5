"""Money that is paid for embedding, and that waves have reserved of a budget."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
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
        "spending",
        sa.Column("entity", sa.String(length=100), nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("texts", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("entity", "month", "job_id", name=op.f("spending_pk")),
        **_OPTIONS,
    )
    op.create_index("spending_job", "spending", ["job_id"])
    op.create_table(
        "reservations",
        sa.Column("wave", sa.String(length=80), nullable=False),
        sa.Column("entity", sa.String(length=100), nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("worker_id", sa.String(length=128), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("wave", name=op.f("reservations_pk")),
        **_OPTIONS,
    )
    op.create_index("reservations_entity", "reservations", ["entity", "month"])
    op.create_table(
        "embedding_batches",
        sa.Column("batch_key", sa.String(length=80), nullable=False),
        sa.Column("entity", sa.String(length=100), nullable=False),
        sa.Column("embedder", sa.String(length=80), nullable=False),
        sa.Column("worker_id", sa.String(length=128), nullable=False),
        sa.Column("batch_id", sa.String(length=255)),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("finished", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("batch_key", name=op.f("embedding_batches_pk")),
        **_OPTIONS,
    )
    op.create_index("embedding_batches_entity", "embedding_batches", ["entity", "embedder"])
