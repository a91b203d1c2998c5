"""Keys of pending queues are texts, too: each is kept as bytes.

The first step makes a number its digits, on every database; MariaDB and MySQL commit that. The second makes them what
`QueueKeyBytes` reads. Where it was interrupted, both are done again, and find what is left.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.ledger.column_types import QueueKeyBytes

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_holds = sa.table("queue_holds", sa.column("queue", sa.String()), sa.column("key", sa.LargeBinary()))

_ROWS = 1_000


def upgrade() -> None:
    with op.batch_alter_table("queue_holds") as batch:
        batch.alter_column(
            "key",
            type_=QueueKeyBytes(),
            existing_type=sa.BigInteger(),
            existing_nullable=False,
            postgresql_using="convert_to(key::text, 'UTF8')",
        )
    connection = op.get_bind()
    # Digits and a minus sign are before the letters that keys begin with.
    left = sa.select(_holds).where(_holds.c.key < b"a").order_by(_holds.c.queue, _holds.c.key).limit(_ROWS)
    those = (_holds.c.queue == sa.bindparam("of"), _holds.c.key == sa.bindparam("digits"))
    change = sa.update(_holds).where(*those).values(key=sa.bindparam("made"))
    made = QueueKeyBytes()
    while rows := connection.execute(left).all():
        connection.execute(
            change,
            [
                {"of": queue, "digits": digits, "made": made.process_bind_param(int(digits), None)}
                for queue, digits in rows
            ],
        )
