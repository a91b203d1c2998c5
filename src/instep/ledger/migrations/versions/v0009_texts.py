"""Texts are compared by their bytes, and may be of any length, on servers too."""

from __future__ import annotations

from alembic import op

from instep.ledger.dialects.collations import convert

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    convert(op.get_bind())
