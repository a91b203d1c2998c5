"""Keys of pending queues that consumers have in hand: leases, failures, and the fence of each queue."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
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
_NAME = sa.String(length=100)
_NUMBER = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "queue_fences",
        sa.Column("queue", _NAME, nullable=False),
        sa.Column("fence", _NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("queue", name=op.f("queue_fences_pk")),
        **_OPTIONS,
    )
    op.create_table(
        "queue_holds",
        sa.Column("queue", _NAME, nullable=False),
        sa.Column("key", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("fence", _NUMBER, nullable=False),
        sa.Column("holder", sa.String(length=128)),
        sa.Column("due_at", _NUMBER),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("since", _NUMBER, nullable=False),
        sa.Column("error", sa.Text()),
        sa.PrimaryKeyConstraint("queue", "key", name=op.f("queue_holds_pk")),
        **_OPTIONS,
    )
    op.create_index("queue_holds_due", "queue_holds", ["queue", "due_at", "key"])
    op.create_index("queue_holds_holder", "queue_holds", ["queue", "holder", "key"])
