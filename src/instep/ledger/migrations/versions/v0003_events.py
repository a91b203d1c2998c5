"""Events, and instances and wants that follow from them.

What is served, and what is being built, gets the events that would have led to it; the projections are made from these
when all migrations are done (`schema.upgrade`). An instance that is served keeps its UUID. One that is being built gets
a new one, because only an event makes the UUID of an instance that is not served.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

from instep.domain.refs import event_instance_id

revision = "0003"
down_revision = "0002"
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
#: TEXT holds 64 KB there.
_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
_ID = sa.String(length=80)
_REF = sa.String(length=255)
_UUID = sa.String(length=36)
_GENERATION = sa.String(length=100)
_STATE = sa.String(length=24)

_jobs = sa.table("jobs", *map(sa.column, ("id", "state", "created_at")))
_job_parts = sa.table(
    "job_parts",
    *map(sa.column, ("job_id", "ref", "instance", "fingerprint", "fresh", "state")),
    *map(sa.column, ("revision", "inputs", "generation")),
)
_checkpoints = sa.table(
    "checkpoints",
    *map(sa.column, ("ref", "instance", "sequence", "physical", "fingerprint", "watermark", "job_id", "updated_at")),
)
_documents = sa.table("documents", sa.column("instance"))
_events = sa.table("events", *map(sa.column, ("sequence", "at", "kind", "version", "body")))
_event_head = sa.table("event_head", *map(sa.column, ("id", "last", "at")))


def upgrade() -> None:
    _create_log()
    _create_instances()
    _create_wants()
    _upgrade_job_parts()
    _add_generation("checkpoints", ["ref", "generation"])
    _add_generation("failures", ["ref", "generation", "document_id"])
    log = _Log()
    served = _import_served(log)
    _import_builds(log, served)
    log.write()
    op.drop_table("sequences")


def _create(name: str, columns: Iterable[sa.Column[Any]], key: Sequence[str], **options: Any) -> None:
    op.create_table(name, *columns, sa.PrimaryKeyConstraint(*key, name=op.f(f"{name}_pk")), **options, **_OPTIONS)


def _needed(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, **options)


def _create_log() -> None:
    number, sequence = _needed("id", sa.Integer(), autoincrement=False), "sequence"
    _create("event_head", [number, _needed("last", sa.BigInteger()), _needed("at", sa.BigInteger())], ["id"])
    _create(
        "events",
        [
            _needed(sequence, sa.BigInteger(), autoincrement=False),
            _needed("at", sa.BigInteger()),
            _needed("kind", sa.String(length=64)),
            _needed("version", sa.Integer()),
            _needed("body", _TEXT),
        ],
        [sequence],
        sqlite_with_rowid=False,
    )
    _create(
        "snapshots",
        [
            _needed(sequence, sa.BigInteger(), autoincrement=False),
            _needed("piece", sa.Integer(), autoincrement=False),
            _needed("at", sa.BigInteger()),
            _needed("body", sa.LargeBinary(length=2**32 - 1)),
        ],
        [sequence, "piece"],
    )


def _create_instances() -> None:
    _create(
        "instances",
        [
            _needed("uuid", _UUID),
            _needed("ref", _REF),
            _needed("generation", _GENERATION),
            _needed("sequence", sa.BigInteger()),
            _needed("state", _STATE),
            _needed("created_at", sa.BigInteger()),
            sa.Column("ended_at", sa.BigInteger()),
            _needed("body", _TEXT),
        ],
        ["uuid"],
    )
    op.create_index("instances_ref", "instances", ["ref", "sequence"])
    of_generation = [("ref", _REF), ("generation", _GENERATION), ("uuid", _UUID)]
    _create("canonical", [_needed(*each) for each in of_generation], ["ref", "generation"])
    _create("promoted", [_needed("ref", _REF), _needed("generation", _GENERATION)], ["ref"])
    by_event = ("sequence", sa.BigInteger())
    _create("served", [_needed(*each) for each in (*of_generation, by_event)], ["ref", "generation"])


def _create_wants() -> None:
    _create(
        "wants",
        [
            _needed("id", _ID),
            _needed("sequence", sa.BigInteger()),
            _needed("state", _STATE),
            sa.Column("needed", sa.BigInteger(), nullable=True),
            _needed("created_at", sa.BigInteger()),
            sa.Column("ended_at", sa.BigInteger()),
            _needed("body", _TEXT),
        ],
        ["id"],
    )
    op.create_index("wants_newest", "wants", ["sequence"])
    op.create_index("wants_open", "wants", ["ended_at", "sequence"])
    _create(
        "want_refs",
        [
            _needed("want_id", _ID),
            _needed("ref", _REF),
            _needed("generation", _GENERATION),
            _needed("sequence", sa.BigInteger()),
            _needed("open", sa.Boolean()),
        ],
        ["want_id", "ref"],
    )
    op.create_index("want_refs_open", "want_refs", ["ref", "open", "sequence"])
    op.create_index("want_refs_newest", "want_refs", ["ref", "sequence"])


def _upgrade_job_parts() -> None:
    with op.batch_alter_table("job_parts") as batch:
        batch.add_column(sa.Column("revision", sa.Text(), nullable=True))
        batch.add_column(sa.Column("inputs", sa.Text(), nullable=True))
        batch.add_column(sa.Column("generation", _GENERATION, nullable=True))
    op.execute(sa.update(_job_parts).values(revision="", inputs="[]", generation=""))
    with op.batch_alter_table("job_parts") as batch:
        batch.alter_column("revision", existing_type=sa.Text(), nullable=False)
        batch.alter_column("inputs", existing_type=sa.Text(), nullable=False)
        batch.alter_column("generation", existing_type=_GENERATION, nullable=False)
    op.create_index("job_parts_epoch", "job_parts", ["ref", "epoch"])


def _add_generation(name: str, key: Sequence[str]) -> None:
    """To a table, and to its primary key."""
    with op.batch_alter_table(name) as batch:
        batch.add_column(sa.Column("generation", _GENERATION, nullable=True))
    op.execute(sa.update(sa.table(name, sa.column("generation"))).values(generation=""))
    with op.batch_alter_table(name) as batch:
        batch.alter_column("generation", existing_type=_GENERATION, nullable=False)
        batch.drop_constraint(f"{name}_pk", type_="primary")
        batch.create_primary_key(op.f(f"{name}_pk"), list(key))


class _Log:
    """The first events of the log: their times never go back."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._at = 0

    def add(self, at: int, kind: str, **fields: Any) -> int:
        self._at = max(self._at, at)
        sequence = len(self._rows) + 1
        body = json.dumps(fields, separators=(",", ":"))
        self._rows.append({"sequence": sequence, "at": self._at, "kind": kind, "version": 1, "body": body})
        return sequence

    def write(self) -> None:
        if self._rows:
            op.get_bind().execute(sa.insert(_events), self._rows)
            op.get_bind().execute(sa.insert(_event_head).values(id=1, last=len(self._rows), at=self._at))


def _import_served(log: _Log) -> dict[str, Any]:
    """Checkpoints by partition. Those of an instance are its UUID by its build number."""
    in_order = sa.select(_checkpoints).order_by(_checkpoints.c.updated_at, _checkpoints.c.ref)
    found = op.get_bind().execute(in_order).all()
    for row in found:
        log.add(
            row.updated_at,
            "instance.imported",
            ref=row.ref,
            build=row.sequence,
            job=row.job_id,
            watermark=row.watermark,
            physical=row.physical,
            fingerprint=json.loads(row.fingerprint),
        )
    return {row.ref: row for row in found}


def _import_builds(log: _Log, served: dict[str, Any]) -> None:
    """Open parts, so that they can be finished; of several on a partition the newest, which is resumed first."""
    newest_first = (
        sa.select(_job_parts, _jobs.c.created_at)
        .join_from(_job_parts, _jobs, _jobs.c.id == _job_parts.c.job_id)
        .where(_job_parts.c.state.is_(None), _jobs.c.state.in_(["READY", "RUNNING", "STOPPING", "STOPPED"]))
        .order_by(_jobs.c.created_at.desc(), _jobs.c.id.desc(), _job_parts.c.ref)
    )
    newest: dict[str, Any] = {}
    for row in op.get_bind().execute(newest_first):
        newest.setdefault(row.ref, row)
    for row in reversed(newest.values()):
        checkpoint = served.get(row.ref)
        if row.fresh:
            _import_build(log, row, "first build" if checkpoint is None else "rebuild")
        elif checkpoint is not None and checkpoint.instance == row.instance:
            floor = checkpoint.watermark
            about = {"instance": row.instance, "job": row.job_id, "floor": floor}
            log.add(row.created_at, "instance.refreshing", **about, target=max(floor, row.created_at))


def _import_build(log: _Log, row: Any, reason: str) -> None:
    sequence = log.add(row.created_at, "instance.created", ref=row.ref, reason=reason)
    uuid = event_instance_id(row.ref, "", sequence)
    fingerprint = json.loads(row.fingerprint)
    about = {"instance": uuid, "job": row.job_id, "target": row.created_at}
    log.add(row.created_at, "instance.building", **about, fingerprint=fingerprint)
    here = (_job_parts.c.job_id == row.job_id, _job_parts.c.ref == row.ref)
    op.execute(sa.update(_job_parts).where(*here).values(instance=uuid))
    op.execute(sa.update(_documents).where(_documents.c.instance == row.instance).values(instance=uuid))
