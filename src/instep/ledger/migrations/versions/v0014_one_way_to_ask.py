"""Requests are wants: what was open becomes one, and so do dead letters; the tables of handlers go.

The wants are events, like all others; the projections are made from these when all migrations are done.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_slots = sa.table(
    "bus_slots",
    *map(sa.column, ("ref", "waiting", "working", "trace")),
    *map(sa.column, ("evicted_watermark", "evicted_reason", "evicted_at")),
)
_promoted = sa.table("promoted", sa.column("ref"), sa.column("generation"))
_events = sa.table("events", *map(sa.column, ("sequence", "at", "kind", "version", "body")))
_head = sa.table("event_head", *map(sa.column, ("id", "last", "at")))


def upgrade() -> None:
    connection = op.get_bind()
    head = connection.execute(sa.select(_head.c.last, _head.c.at).where(_head.c.id == 1)).one()
    at = max(head.at, round(time.time() * 1_000))
    promoted = {row.ref: row.generation for row in connection.execute(sa.select(_promoted))}
    slots = connection.execute(sa.select(_slots).order_by(_slots.c.ref)).all()
    found = [event for slot in slots for event in _wanted(slot, promoted.get(slot.ref, ""), at)]
    rows = [
        {"sequence": head.last + number, "at": at, "kind": kind, "version": version, "body": json.dumps(fields)}
        for number, (kind, version, fields) in enumerate(found, 1)
    ]
    if rows:
        connection.execute(sa.insert(_events), rows)
        connection.execute(sa.update(_head).where(_head.c.id == 1).values(last=rows[-1]["sequence"], at=at))
    for table in ("bus_slots", "bus_consumers", "bus_requests", "bus_kinds"):
        op.drop_table(table)


def _wanted(slot: Any, generation: str, at: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The newest request that waits or is in work; the dead letter, which only what comes later covers."""
    asked = max((each for each in (slot.waiting, slot.working) if each is not None), default=None)
    if asked is not None:
        yield _created(slot, str(asked), generation, asked // 1_000)
    if slot.evicted_at is not None:
        created = _created(slot, f"{slot.evicted_watermark} given up", generation, at)
        yield created
        yield "want.failed", 1, {"want": created[2]["want"], "error": slot.evicted_reason or "", "final": True}


def _created(slot: Any, name: str, generation: str, as_of: int) -> tuple[str, int, dict[str, Any]]:
    want = str(uuid.uuid5(uuid.NAMESPACE_URL, f"instep:{slot.ref} {name}"))
    fields = {"want": want, "refs": [slot.ref], "as_of": as_of, "by": "message", "retries": {}}
    more = {"generation": generation, "traceparent": slot.trace or ""}
    return "want.created", 3, fields | {name: value for name, value in more.items() if value}
