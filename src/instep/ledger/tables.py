"""The ledger's tables. Every change here needs a migration; a test compares the two.

Types stay portable: bounded strings for MariaDB's indexes, BIGINT milliseconds instead of
timestamps, LONGBLOB-sized binaries. How texts are compared, and how long they may be, is in `collations`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    column,
    false,
    text,
)

from instep.domain.counts import COUNT_FIELDS
from instep.domain.jobs import JobState, SliceState
from instep.domain.storable import LONGEST_ID, LONGEST_VERSION
from instep.ledger.column_types import KeyText, LongText, QueueKeyBytes

#: Revision of the newest migration. Revisions are numbers in text, so that they can be ordered.
HEAD: Final = "0021"

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "ck": "%(table_name)s_%(constraint_name)s_ck",
    }
)

_ID = KeyText(LONGEST_ID)
_REF = KeyText(255)
_WORKER = KeyText(128)
_STATE = String(24)
_UUID = KeyText(36)
_GENERATION = KeyText(100)
_NAME = KeyText(100)
_TEXT = LongText()


def _states(states: Iterable[JobState] | Iterable[SliceState]) -> CheckConstraint:
    names = ", ".join(f"'{state}'" for state in states)
    return CheckConstraint(f"state IN ({names})", name="state")


jobs = Table(
    "jobs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("state", _STATE, nullable=False),
    Column("worker_id", _WORKER, nullable=False),
    Column("configuration", _TEXT, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("updated_at", BigInteger, nullable=False),
    Column("stopping_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("error", _TEXT),
    _states(JobState),
    Index("jobs_created", "created_at", "id"),
    Index("jobs_state", "state"),
)

#: A part has one of these states when it has ended; while it is open it has none.
PART_ENDS: Final = (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED)

job_parts = Table(
    "job_parts",
    metadata,
    Column("job_id", _ID, primary_key=True),
    Column("ref", _REF, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("instance", _UUID, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("physical", KeyText(255), nullable=False),
    Column("fingerprint", _TEXT, nullable=False),
    Column("buckets", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("base", BigInteger, nullable=False),
    Column("fresh", Boolean, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("state", _STATE),
    Column("finished_at", BigInteger),
    Column("error", _TEXT),
    Column("finisher", _WORKER),
    Column("revision", _TEXT, nullable=False),
    Column("inputs", _TEXT, nullable=False),
    Column("generation", _GENERATION, nullable=False),
    Column("target", BigInteger),
    Column("lost_units", BigInteger, nullable=False, server_default=text("0")),
    Column("lost_rows", BigInteger, nullable=False, server_default=text("0")),
    Column("allowed", Boolean, nullable=False, server_default=false()),
    ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
    _states(PART_ENDS),
    # Which job has worked on a partition, and under which epoch.
    Index("job_parts_epoch", "ref", "epoch"),
)

#: Who takes part in which job; `units` of the wave that `slice_id` is one of are read. Workers that are gone leave no
#: rows behind: who evicts them sees to it, and sweeps do.
job_workers = Table(
    "job_workers",
    metadata,
    Column("job_id", _ID, primary_key=True),
    Column("worker_id", _WORKER, primary_key=True),
    Column("slice_id", _ID),
    Column("units", BigInteger, nullable=False, server_default=text("0")),
    ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
    Index("job_workers_worker", "worker_id"),
)

#: Lines of a job's log, by their number in it. `kind`: see `job_log`.
job_log = Table(
    "job_log",
    metadata,
    Column("job_id", _ID, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("ref", _REF, nullable=False),
    Column("worker_id", _WORKER, nullable=False),
    Column("kind", _STATE, nullable=False),
    Column("text", _TEXT, nullable=False),
    ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
)

#: The pace of the newest job of each entity whose waves lasted long enough, with each engine. `how` tells what was done
#: with its documents: another embedder has another pace.
paces = Table(
    "paces",
    metadata,
    Column("entity", _NAME, primary_key=True),
    Column("how", _ID, primary_key=True),
    Column("engine", String(16), primary_key=True),
    Column("cores", Integer, nullable=False),
    Column("work", BigInteger, nullable=False),
    Column("milliseconds", BigInteger, nullable=False),
    Column("job_id", _ID, nullable=False),
)

#: What jobs have paid for embedding, by month, in billionths of the user's currency. The row of no job is what
#: transactions about a month lock.
spending = Table(
    "spending",
    metadata,
    Column("entity", _NAME, primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("job_id", _ID, primary_key=True),
    Column("texts", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Index("spending_job", "job_id"),
)

#: What waves in work may spend; of a worker that is gone: may have spent.
reservations = Table(
    "reservations",
    metadata,
    Column("wave", _ID, primary_key=True),
    Column("entity", _NAME, nullable=False),
    Column("month", String(7), nullable=False),
    Column("job_id", _ID, nullable=False),
    Column("worker_id", _WORKER, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Index("reservations_entity", "entity", "month"),
)

#: Batches of texts at an embedder's batch API, by our keys for them; without a `batch_id` it is not known whether one
#: was submitted. `embedder` is the fingerprint of the model.
embedding_batches = Table(
    "embedding_batches",
    metadata,
    Column("batch_key", _ID, primary_key=True),
    Column("entity", _NAME, nullable=False),
    Column("embedder", _ID, nullable=False),
    Column("worker_id", _WORKER, nullable=False),
    Column("batch_id", KeyText(255)),
    Column("made_at", BigInteger, nullable=False),
    Column("finished", Boolean, nullable=False),
    Index("embedding_batches_entity", "entity", "embedder"),
)

#: The hot table: no payload, no heartbeat. `attempts` counts tries that ended badly, `rank` is the place in
#: the order of claims.
slices = Table(
    "slices",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("job_id", _ID, nullable=False),
    Column("ref", _REF, nullable=False),
    Column("number", Integer, nullable=False),
    Column("bucket", Integer, nullable=False),
    Column("units", BigInteger, nullable=False),
    Column("work", BigInteger, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("claimable_at", BigInteger, nullable=False),
    Column("state", _STATE, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("worker_id", _WORKER),
    Column("claimed_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("error", _TEXT),
    Column("split_from", _ID),
    *(Column(name, BigInteger, nullable=False, server_default=text("0")) for name in COUNT_FIELDS),
    ForeignKeyConstraint(["job_id", "ref"], ["job_parts.job_id", "job_parts.ref"], ondelete="CASCADE"),
    _states(SliceState),
    CheckConstraint(
        # An expression, not text: `read` is a reserved word in MySQL and must be quoted there.
        column("read") == column("written") + column("skipped") + column("deleted") + column("failed"),
        name="balanced",
    ),
    # Statistics read it in its order; nothing has to be sorted.
    Index("slices_job", "job_id", "ref", "state"),
)

# What a claim reads, in the order in which it takes them. (These indexes are SQLite's. What they are on
# servers is in the migrations alone: naming another dialect here would import it, 20 ms at every start.)
Index(
    "slices_pending",
    slices.c.job_id,
    slices.c.ref,
    slices.c.rank,
    slices.c.id,
    sqlite_where=text("state = 'PENDING'"),
)

# What a dead or leaving worker still holds.
Index(
    "slices_processing",
    slices.c.worker_id,
    slices.c.job_id,
    sqlite_where=text("state = 'PROCESSING'"),
)

#: What a slice is to do: written once, read by a claim.
slice_work = Table(
    "slice_work",
    metadata,
    Column("slice_id", _ID, primary_key=True),
    Column("lower_bound", _TEXT, nullable=False),
    Column("upper_bound", _TEXT, nullable=False),
    Column("payload", LargeBinary(length=2**32 - 1), nullable=False),
    ForeignKeyConstraint(["slice_id"], ["slices.id"], ondelete="CASCADE"),
)

workers = Table(
    "workers",
    metadata,
    Column("id", _WORKER, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("host", KeyText(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
)

#: A row stays for ever, because its epoch must grow for ever; without a job the lease is free.
leases = Table(
    "leases",
    metadata,
    Column("ref", _REF, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("job_id", _ID),
    Column("since", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

#: Up to when, and to which epoch and target, jobs of a partition were forgotten. The row of no partition says when
#: instances and wants were last looked through for what may be.
forgotten = Table(
    "forgotten",
    metadata,
    Column("ref", _REF, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("target", BigInteger, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("ref", _REF, primary_key=True),
    Column("generation", _GENERATION, primary_key=True),
    Column("instance", _UUID, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("physical", KeyText(255), nullable=False),
    Column("fingerprint", _TEXT, nullable=False),
    Column("buckets", Integer, nullable=False),
    Column("watermark", BigInteger, nullable=False),
    Column("job_id", _ID, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

#: What runs have seen of a table (`domain.seen`), by generation: of a job that has not ended, and, without one, of what
#: is served, as long as that is this instance.
seen = Table(
    "seen",
    metadata,
    Column("ref", _REF, primary_key=True),
    Column("generation", _GENERATION, primary_key=True),
    Column("job_id", _ID, primary_key=True),
    Column("instance", _UUID, nullable=False),
    Column("body", LargeBinary(length=2**32 - 1), nullable=False),
    Column("late", _TEXT),
)

#: The manifest: columns in the order of `domain.manifest.ManifestEntry`, after the instance. `revision`: of the
#: instance's manifest when the row was written.
documents = Table(
    "documents",
    metadata,
    Column("instance", _UUID, primary_key=True),
    Column("document_id", _ID, primary_key=True),
    Column("uri", _TEXT, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("version", KeyText(LONGEST_VERSION), nullable=False),
    Column("document_hash", KeyText(LONGEST_VERSION), nullable=False),
    Column("chunks", BigInteger, nullable=False),
    Column("bucket", Integer, nullable=False),
    Column("digest", BigInteger),
    Column("revision", BigInteger, nullable=False, server_default=text("0")),
    sqlite_with_rowid=False,
)

#: How often the manifest of an instance was written, and the base file (`bases`) that holds its rows up to one of these
#: revisions. An instance without a row has none, and is at revision 0.
manifests = Table(
    "manifests",
    metadata,
    Column("instance", _UUID, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("base", _UUID),
    Column("base_revision", BigInteger),
)

#: Documents that were removed since the base of their instance was written, which may have them.
removals = Table(
    "removals",
    metadata,
    Column("instance", _UUID, primary_key=True),
    Column("document_id", _ID, primary_key=True),
    sqlite_with_rowid=False,
)

#: Partitions of whose source not all could be seen at the last look.
listing_problems = Table(
    "listing_problems",
    metadata,
    Column("ref", _REF, primary_key=True),
    Column("problem", Text, nullable=False),
)

failures = Table(
    "failures",
    metadata,
    Column("ref", _REF, primary_key=True),
    Column("generation", _GENERATION, primary_key=True),
    Column("document_id", _ID, primary_key=True),
    Column("uri", _TEXT, nullable=False),
    Column("version", KeyText(LONGEST_VERSION), nullable=False),
    Column("stage", KeyText(40), nullable=False),
    Column("reason", _TEXT, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("job_id", _ID, nullable=False),
    Column("failed_at", BigInteger, nullable=False),
    Index("failures_newest", "ref", "failed_at"),
)

# Events, and what follows from them.

#: The number and time of the last event, the id of this very ledger, and the last event before it had one. Its one row,
#: there from the beginning, is locked by appends.
event_head = Table(
    "event_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("ledger", _UUID, nullable=False, server_default=text("''")),
    Column("since", BigInteger, nullable=False, server_default=text("0")),
)

#: Columns in the order of `event_log.LogRow`.
events = Table(
    "events",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("body", _TEXT, nullable=False),
    sqlite_with_rowid=False,
)

#: The state that the forgotten events led to, the last of which has this sequence, and the origins of what is in it, in
#: pieces (`log_start`).
log_start = Table(
    "log_start",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("piece", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("body", LargeBinary(length=2**32 - 1), nullable=False),
)

#: States of instances and wants by `domain.snapshot`, in pieces that every server takes.
snapshots = Table(
    "snapshots",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("piece", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("body", LargeBinary(length=2**32 - 1), nullable=False),
)

# Projections. A body is the value as JSON; the columns beside it are for looking things up.

instances = Table(
    "instances",
    metadata,
    Column("uuid", _UUID, primary_key=True),
    Column("ref", _REF, nullable=False),
    Column("generation", _GENERATION, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("state", _STATE, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("body", _TEXT, nullable=False),
    Index("instances_ref", "ref", "sequence"),
)

canonical = Table(
    "canonical",
    metadata,
    Column("ref", _REF, primary_key=True),
    Column("generation", _GENERATION, primary_key=True),
    Column("uuid", _UUID, nullable=False),
)

#: `sequence` is that of the event that said so.
served = Table(
    "served",
    metadata,
    Column("ref", _REF, primary_key=True),
    Column("generation", _GENERATION, primary_key=True),
    Column("uuid", _UUID, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)

#: The generation of a partition for readers that name none.
promoted = Table(
    "promoted",
    metadata,
    Column("ref", _REF, primary_key=True),
    Column("generation", _GENERATION, nullable=False),
)

#: `sequence` is that of the event that made it: wants are looked at in that order. `needed` is `Want.due`.
wants = Table(
    "wants",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("state", _STATE, nullable=False),
    Column("needed", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("body", _TEXT, nullable=False),
    Index("wants_newest", "sequence"),
    Index("wants_open", "ended_at", "sequence"),
)

#: What each want waits for, or has waited for.
want_refs = Table(
    "want_refs",
    metadata,
    Column("want_id", _ID, primary_key=True),
    Column("ref", _REF, primary_key=True),
    Column("generation", _GENERATION, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("open", Boolean, nullable=False),
    Index("want_refs_open", "ref", "open", "sequence"),
    Index("want_refs_newest", "ref", "sequence"),
)

# Groups of partitions, and the keys under which the state of each partition is told.

#: A row is locked to see whether its group has room.
bus_groups = Table("bus_groups", metadata, Column("name", _NAME, primary_key=True))

#: A key that was deleted keeps its row, without a value, because its revision must grow for ever.
bus_status = Table(
    "bus_status",
    metadata,
    Column("key", _REF, primary_key=True),
    Column("value", _TEXT),
    Column("revision", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

# Pending queues: the keys of them that consumers have in hand.

#: The fence of each queue's newest lease. The row is locked by leases, and by new rows of `queue_holds`.
queue_fences = Table(
    "queue_fences",
    metadata,
    Column("queue", _NAME, primary_key=True),
    Column("fence", BigInteger, nullable=False),
)

#: `domain.key_leases.KeyLease` of each key that is leased or has failed. `due_at` is NULL for a parked key.
queue_holds = Table(
    "queue_holds",
    metadata,
    Column("queue", _NAME, primary_key=True),
    Column("key", QueueKeyBytes, primary_key=True),
    Column("fence", BigInteger, nullable=False),
    Column("holder", _WORKER),
    Column("due_at", BigInteger),
    Column("attempts", Integer, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("error", _TEXT),
    Index("queue_holds_due", "queue", "due_at", "key"),
    Index("queue_holds_holder", "queue", "holder", "key"),
)
