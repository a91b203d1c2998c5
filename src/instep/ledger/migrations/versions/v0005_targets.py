"""Up to when a part's instance is complete once it is done."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_parts", sa.Column("target", sa.BigInteger(), nullable=True))
