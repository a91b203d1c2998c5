"""The first schema: jobs, slices, workers, leases, checkpoints, manifest and failures."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
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
_JOB_STATES = (
    "state IN ('INITIALIZING', 'READY', 'RUNNING', 'STOPPING', 'STOPPED', "
    "'COMPLETED', 'COMPLETED_WITH_ERRORS', 'FAILED')"
)
_SLICE_STATES = "state IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED')"
_BALANCED = sa.column("read") == (
    sa.column("written") + sa.column("skipped") + sa.column("deleted") + sa.column("failed")
)


def upgrade() -> None:
    _jobs()
    _job_parts()
    _slices()
    _slice_work()
    _workers()
    _leases()
    _sequences()
    _checkpoints()
    _documents()
    _failures()


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("instance", sa.String(length=36), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("physical", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("buckets", sa.Integer(), nullable=False),
        sa.Column("watermark", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("ref", name=op.f("checkpoints_pk")),
        **_OPTIONS,
    )


def _documents() -> None:
    op.create_table(
        "documents",
        sa.Column("instance", sa.String(length=36), nullable=False),
        sa.Column("document_id", sa.String(length=80), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.String(length=255), nullable=False),
        sa.Column("document_hash", sa.String(length=255), nullable=False),
        sa.Column("chunks", sa.BigInteger(), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("instance", "document_id", name=op.f("documents_pk")),
        sqlite_with_rowid=False,
        **_OPTIONS,
    )


def _failures() -> None:
    op.create_table(
        "failures",
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("document_id", sa.String(length=80), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("version", sa.String(length=255), nullable=False),
        sa.Column("stage", sa.String(length=40), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("failed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("ref", "document_id", name=op.f("failures_pk")),
        **_OPTIONS,
    )
    op.create_index("failures_newest", "failures", ["ref", "failed_at"])


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("state", sa.String(length=24), nullable=False),
        sa.Column("worker_id", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint(_JOB_STATES, name=op.f("jobs_state_ck")),
        sa.PrimaryKeyConstraint("id", name=op.f("jobs_pk")),
        **_OPTIONS,
    )
    op.create_index("jobs_created", "jobs", ["created_at", "id"])
    op.create_index("jobs_state", "jobs", ["state"])


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.String(length=128), nullable=True),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("ref", name=op.f("leases_pk")),
        **_OPTIONS,
    )


def _sequences() -> None:
    op.create_table(
        "sequences",
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("ref", name=op.f("sequences_pk")),
        **_OPTIONS,
    )


def _workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("workers_pk")),
        **_OPTIONS,
    )


def _job_parts() -> None:
    op.create_table(
        "job_parts",
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("instance", sa.String(length=36), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("physical", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("buckets", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=False),
        sa.Column("fresh", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("job_parts_job_id_fk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "ref", name=op.f("job_parts_pk")),
        **_OPTIONS,
    )


def _slices() -> None:
    op.create_table(
        "slices",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("work", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=24), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.String(length=128), nullable=True),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("split_from", sa.String(length=80), nullable=True),
        sa.Column("read", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("written", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("deleted", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rows_written", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rows_kept", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rows_deleted", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("embedded", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("bytes_read", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "ref"], ["job_parts.job_id", "job_parts.ref"], name=op.f("slices_job_id_fk"), ondelete="CASCADE"
        ),
        sa.CheckConstraint(_SLICE_STATES, name=op.f("slices_state_ck")),
        sa.CheckConstraint(_BALANCED, name=op.f("slices_balanced_ck")),
        sa.PrimaryKeyConstraint("id", name=op.f("slices_pk")),
        **_OPTIONS,
    )
    op.create_index("slices_job", "slices", ["job_id", "ref"])
    op.create_index(
        "slices_pending",
        "slices",
        ["job_id", "ref", sa.literal_column("priority DESC"), sa.literal_column("work DESC"), "number", "id"],
        sqlite_where=sa.text("state = 'PENDING'"),
        postgresql_where=sa.text("state = 'PENDING'"),
    )
    op.create_index(
        "slices_processing",
        "slices",
        ["worker_id", "job_id"],
        sqlite_where=sa.text("state = 'PROCESSING'"),
        postgresql_where=sa.text("state = 'PROCESSING'"),
    )


def _slice_work() -> None:
    op.create_table(
        "slice_work",
        sa.Column("slice_id", sa.String(length=80), nullable=False),
        sa.Column("lower_bound", sa.Text(), nullable=False),
        sa.Column("upper_bound", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(length=4294967295), nullable=False),
        sa.ForeignKeyConstraint(["slice_id"], ["slices.id"], name=op.f("slice_work_slice_id_fk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("slice_id", name=op.f("slice_work_pk")),
        **_OPTIONS,
    )
