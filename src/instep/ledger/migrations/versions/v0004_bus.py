"""The bus in the ledger's database: requests, what handlers have made of them, status keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
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
_REF = sa.String(length=255)
_NAME = sa.String(length=100)
_KIND = sa.String(length=16)
_NUMBER = sa.BigInteger()


def upgrade() -> None:
    _create("bus_kinds", [_needed("kind", _KIND)])
    _create(
        "bus_requests",
        [
            _needed("scope", _REF),
            _needed("kind", _KIND),
            _needed("watermark", _NUMBER),
            _needed("published_at", _NUMBER),
        ],
    )
    _create("bus_consumers", [_needed("name", _NAME), _needed("kind", _KIND)])
    _create("bus_groups", [_needed("name", _NAME)])
    _create_slots()
    _create(
        "bus_status",
        [
            _needed("key", _REF),
            sa.Column("value", sa.Text()),
            _needed("revision", _NUMBER),
            _needed("updated_at", _NUMBER),
        ],
    )


def _create_slots() -> None:
    _create(
        "bus_slots",
        [
            _needed("ref", _REF),
            _needed("consumer", _NAME),
            _needed("kind", _KIND),
            _needed("seen", _NUMBER),
            _needed("done", _NUMBER),
            sa.Column("waiting", _NUMBER),
            sa.Column("working", _NUMBER),
            sa.Column("working_group", _NAME),
            _needed("attempts", sa.Integer()),
            _needed("is_last", sa.Boolean()),
            _needed("fence", _NUMBER),
            sa.Column("due_at", _NUMBER),
            sa.Column("evicted_watermark", _NUMBER),
            sa.Column("evicted_attempts", sa.Integer()),
            sa.Column("evicted_reason", sa.Text()),
            sa.Column("evicted_at", _NUMBER),
        ],
    )
    op.create_index("bus_slots_due", "bus_slots", ["consumer", "due_at", "ref"])
    op.create_index("bus_slots_last", "bus_slots", ["is_last", "due_at"])
    op.create_index("bus_slots_group", "bus_slots", ["working_group", "due_at"])
    op.create_index("bus_slots_evicted", "bus_slots", ["evicted_at"])


def _create(name: str, columns: Iterable[sa.Column[Any]]) -> None:
    """The first column is the key."""
    key, *others = columns
    constraint = sa.PrimaryKeyConstraint(key.name, name=op.f(f"{name}_pk"))
    op.create_table(name, key, *others, constraint, **_OPTIONS)


def _needed(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)
