"""Digests of the chunks of each document, for comparing targets with the ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("documents", sa.Column("digest", sa.BigInteger(), nullable=True))
