"""Many servers on one job: leases of jobs, who takes part in them, parts that end by themselves.

A column that must not be NULL comes in three steps: add it, fill it, forbid NULL. Leases become free;
jobs that have not ended stay open, for the next run to go on with.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
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
_PART_ENDS = ("COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED")
#: What a part has of the job that it ended with.
_OF_THE_JOB = ("state", "finished_at", "error")

_jobs = sa.table(
    "jobs",
    *map(sa.column, ("id", "state", "configuration", "created_at", "started_at", "updated_at", "stopping_at")),
    *map(sa.column, ("finished_at", "error")),
)
_job_parts = sa.table(
    "job_parts", *map(sa.column, ("job_id", "ref", "priority", "state", "finished_at", "error", "finisher"))
)
_slices = sa.table(
    "slices", *map(sa.column, ("id", "job_id", "ref", "number", "work", "priority", "rank", "claimable_at"))
)
_workers = sa.table("workers", sa.column("kind"))


def upgrade() -> None:
    _upgrade_jobs()
    _upgrade_job_parts()
    _create_job_workers()
    _upgrade_slices()
    _upgrade_workers()
    _upgrade_leases()


def _upgrade_jobs() -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(sa.Column("configuration", sa.Text(), nullable=True))
        batch.add_column(sa.Column("updated_at", sa.BigInteger(), nullable=True))
        batch.add_column(sa.Column("stopping_at", sa.BigInteger(), nullable=True))
    last = sa.func.coalesce(_jobs.c.finished_at, _jobs.c.started_at, _jobs.c.created_at)
    op.execute(sa.update(_jobs).values(configuration="{}", updated_at=last))
    op.execute(sa.update(_jobs).where(_jobs.c.state == "STOPPING").values(stopping_at=last))
    with op.batch_alter_table("jobs") as batch:
        batch.alter_column("configuration", existing_type=sa.Text(), nullable=False)
        batch.alter_column("updated_at", existing_type=sa.BigInteger(), nullable=False)


def _upgrade_job_parts() -> None:
    with op.batch_alter_table("job_parts") as batch:
        batch.add_column(sa.Column("priority", sa.Integer(), nullable=True))
        batch.add_column(sa.Column("state", sa.String(length=24), nullable=True))
        batch.add_column(sa.Column("finished_at", sa.BigInteger(), nullable=True))
        batch.add_column(sa.Column("error", sa.Text(), nullable=True))
        batch.add_column(sa.Column("finisher", sa.String(length=128), nullable=True))
    here = (_slices.c.job_id == _job_parts.c.job_id, _slices.c.ref == _job_parts.c.ref)
    highest = sa.select(sa.func.max(_slices.c.priority)).where(*here).scalar_subquery()
    op.execute(sa.update(_job_parts).values(priority=sa.func.coalesce(highest, 0)))
    ended = sa.and_(_jobs.c.id == _job_parts.c.job_id, _jobs.c.state.in_(_PART_ENDS))
    op.execute(
        sa.update(_job_parts)
        .where(sa.exists().where(ended))
        .values({name: sa.select(_jobs.c[name]).where(ended).scalar_subquery() for name in _OF_THE_JOB})
    )
    with op.batch_alter_table("job_parts") as batch:
        batch.alter_column("priority", existing_type=sa.Integer(), nullable=False)
        batch.create_check_constraint(op.f("job_parts_state_ck"), sa.column("state").in_(_PART_ENDS))


def _create_job_workers() -> None:
    op.create_table(
        "job_workers",
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("worker_id", sa.String(length=128), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("job_workers_job_id_fk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "worker_id", name=op.f("job_workers_pk")),
        **_OPTIONS,
    )
    op.create_index("job_workers_worker", "job_workers", ["worker_id"])


def _upgrade_slices() -> None:
    op.drop_index("slices_pending", "slices")
    with op.batch_alter_table("slices") as batch:
        batch.add_column(sa.Column("rank", sa.Integer(), nullable=True))
        batch.add_column(sa.Column("claimable_at", sa.BigInteger(), nullable=True))
    order = (_slices.c.priority.desc(), _slices.c.work.desc(), _slices.c.number, _slices.c.id)
    place = sa.func.row_number().over(partition_by=_slices.c.job_id, order_by=order)
    ranked = sa.select(_slices.c.id, (place - 1).label("place")).subquery("ranked")
    op.execute(sa.update(_slices).where(_slices.c.id == ranked.c.id).values(rank=ranked.c.place, claimable_at=0))
    with op.batch_alter_table("slices") as batch:
        batch.alter_column("rank", existing_type=sa.Integer(), nullable=False)
        batch.alter_column("claimable_at", existing_type=sa.BigInteger(), nullable=False)
    if op.get_bind().dialect.name in ("mysql", "mariadb"):
        _index_slices_by_state()
    else:
        _index_slices()


def _index_slices() -> None:
    op.drop_index("slices_job", "slices")
    op.create_index("slices_job", "slices", ["job_id", "ref", "state"])
    pending = sa.text("state = 'PENDING'")
    op.create_index(
        "slices_pending", "slices", ["job_id", "ref", "rank", "id"], sqlite_where=pending, postgresql_where=pending
    )


def _index_slices_by_state() -> None:
    """No partial indexes there: the state comes first, so that what has ended is passed over."""
    op.create_index("slices_pending", "slices", ["job_id", "ref", "state", "rank", "id"])
    # The one before does all that this did, for the foreign key too.
    op.drop_index("slices_job", "slices")
    op.drop_index("slices_processing", "slices")
    op.create_index("slices_processing", "slices", ["state", "worker_id", "job_id"])


def _upgrade_workers() -> None:
    with op.batch_alter_table("workers") as batch:
        batch.add_column(sa.Column("kind", sa.String(length=16), nullable=True))
    op.execute(sa.update(_workers).values(kind="run"))
    with op.batch_alter_table("workers") as batch:
        batch.alter_column("kind", existing_type=sa.String(length=16), nullable=False)


def _upgrade_leases() -> None:
    with op.batch_alter_table("leases") as batch:
        batch.drop_column("worker_id")
        batch.drop_column("host")
        batch.drop_column("pid")
        batch.add_column(sa.Column("job_id", sa.String(length=80), nullable=True))
