"""The ledger's id, and the last event before it had one: instances that those made keep their names.

The row of the log's head is there from the beginning now.
"""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_head = sa.table("event_head", *map(sa.column, ("id", "last", "at", "ledger", "since")))


def upgrade() -> None:
    for column in (
        sa.Column("ledger", sa.String(length=36), nullable=False, server_default=sa.text("''")),
        sa.Column("since", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
    ):
        op.add_column("event_head", column)
    connection, name = op.get_bind(), str(uuid.uuid4())
    if connection.execute(sa.update(_head).values(ledger=name, since=_head.c.last)).rowcount == 0:
        connection.execute(sa.insert(_head).values(id=1, last=0, at=0, ledger=name, since=0))
