"""The SQL that the ledger needs of a database beyond portable SQL, and the base that several databases share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, select
from sqlalchemy.exc import DBAPIError

from instep.domain.counts import COUNT_FIELDS
from instep.domain.retries import LONGEST_DELAY
from instep.domain.waves import SliceOutcome
from instep.errors import InstepError, Transient
from instep.ledger.tables import slices

if TYPE_CHECKING:
    import pyarrow as pa


class Collision(Transient):
    """The database gave this transaction up for the sake of another (deadlock, serialization failure).

    It had no effect, and is tried again at once, a few times.
    """


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The slices that a claim takes: those with `least` to `most` bad ends behind them, from rank `after` on, until
    their work reaches `enough` (at least one), at most `limit`.
    """

    job_id: str
    ref: str
    worker_id: str
    enough: int
    limit: int
    after: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """Slices that have been done, under which fences, in a part of which epoch."""

    job_id: str
    ref: str
    epoch: int
    worker_id: str
    outcomes: Sequence[SliceOutcome]


class SqlDialect(Protocol):
    """The SQL of one kind of database. May be shared by threads: a connection comes with every call."""

    @property
    def autocommit(self) -> bool:
        """Whether the engine's connections commit each statement by themselves, which spares claims and most reads
        the round trips of BEGIN and COMMIT. Then claims and completions must be one statement each, all or nothing.
        """

    def now(self, connection: Connection, /) -> int:
        """The ledger's clock, in milliseconds."""

    def claim(self, connection: Connection, request: ClaimRequest, /) -> Sequence[Sequence[Any]]:
        """Claim slices and return, in any order, for each: id, number, bucket, units, work, attempts,
        fence (the new one), rank, payload.

        Only slices that are PENDING and `claimable_at <= now`, by rank and id, and only while the job is
        RUNNING, the partition's lease is the job's, and the worker is registered. Sets state PROCESSING,
        fence + 1, worker_id and claimed_at = now.
        """

    def complete(self, connection: Connection, request: CompleteRequest, /) -> int:
        """Set slices COMPLETED, with their counts, finished_at = now and error NULL; return how many.

        Only those that are PROCESSING of this job and partition, under their fence, by this worker, and only
        while the partition's lease is the job's, under the epoch. The lease is read, not locked. The caller
        rolls back when a slice was left out.
        """

    def replace_documents(self, connection: Connection, columns: Mapping[str, Sequence[Any]], /) -> None:
        """Insert manifest rows, given by their columns (those of `tables.documents`), replacing those of the same
        document; of a document that is there twice, the last one stays.
        """

    def columns(self, connection: Connection, query: Select[Any], schema: pa.Schema, /) -> pa.RecordBatch:
        """The rows of a query in columns of these names and types (texts and whole numbers)."""

    def planned(self, connection: Connection, slices: int, /) -> None:
        """A job with so many slices was stored: the database may bring its statistics of the table up to date."""

    def statistics(self, connection: Connection, job_ids: Sequence[str], since: int, /) -> Iterable[Row[Any]]:
        """Counts for each job, partition and state in which there are slices: `job_id`, `ref`, `state`, their `number`,
        the units `planned`, and the sum of each of `COUNT_FIELDS`, as whole numbers of any type. Of those that ended
        since a moment: `lately`, the sum of their `read`, and `begun`, when the first of them was claimed; or NULL.
        """

    def explain(self, error: DBAPIError, *, committing: bool) -> InstepError | None:
        """The error as the caller should see it; None for an error in Instep itself.

        `committing` says that the statement was, or included, the commit: when the connection was lost then,
        the outcome is `Unknown`, else `Transient`. Deadlocks and serialization failures are `Collision`s.
        """


def may_be_claimed(at: ColumnElement[int], now: ColumnElement[int]) -> ColumnElement[bool]:
    """A condition: a slice may be claimed now, since its time has come, or was set by a clock that has been set back
    since.
    """
    return ~at.between(now + 1, now + LONGEST_DELAY)


_LATELY = slices.c.finished_at >= bindparam("b_since")
_STATISTICS = (
    select(
        slices.c.job_id,
        slices.c.ref,
        slices.c.state,
        func.count().label("number"),
        func.sum(slices.c.units).label("planned"),
        func.sum(slices.c.read).filter(_LATELY).label("lately"),
        func.min(slices.c.claimed_at).filter(_LATELY).label("begun"),
        *(func.sum(slices.c[name]).label(name) for name in COUNT_FIELDS),
    )
    .where(slices.c.job_id.in_(bindparam("b_ids", expanding=True)))
    .group_by(slices.c.job_id, slices.c.ref, slices.c.state)
)


def grouped(connection: Connection, job_ids: Sequence[str], since: int) -> Iterable[Row[Any]]:
    """Read `SqlDialect.statistics` on databases that have FILTER, which costs less than CASE. One statement, where that
    is the quickest.
    """
    return connection.execute(_STATISTICS, {"b_ids": job_ids, "b_since": since})
