"""In which trace a request on the bus was asked for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("bus_requests", "bus_slots"):
        op.add_column(table, sa.Column("trace", sa.String(length=568), nullable=True))
