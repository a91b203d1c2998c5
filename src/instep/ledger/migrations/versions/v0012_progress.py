"""Progress of waves that have not ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_workers", sa.Column("slice_id", sa.String(length=80)))
    op.add_column("job_workers", sa.Column("units", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
