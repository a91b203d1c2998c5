"""Journal of writes into one physical index: epochs of its partitions, commits, fences and outcomes of slices.

Each change takes the row of its partition's epoch and keeps it until it is committed. So a commit
that a fence did not find is refused, and nothing comes between a check and its change. That row is locked last, after
the rows of data: fences wait only for the last step of a commit, and no deadlock is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from instep.domain.waves import Mark
from instep.errors import Conflict, Fenced
from instep.postgres.connection import Session
from instep.targets.journal import refuse_epoch, refuse_fences
from instep.targets.postgres import staging
from instep.targets.postgres.registry import COMMITS, EPOCHS, INDEXES, MARKS, Index, known, own, owner_of_index, prepare


@dataclass(frozen=True, slots=True)
class Journal:
    session: Session
    index: Index

    def fence(self, scope: str, epoch: int, marks: Sequence[Mark], taken: Callable[[str | None], str]) -> int:
        """See `DocumentTarget.fence`. `taken`: see `OwnedIndexes`."""
        if taken(before := owner_of_index(self.session, self.index.name)) != before:
            prepare(self.session)  # It was made before owners were written down.
        with self.session.transaction():
            self.take(scope, epoch)
            self._refuse_slices(marks, since=0)
            seq = self._next()
            own(self.session, self.index.name, taken)
            self._mark(seq, scope, epoch, [(mark.slice_id, mark.fence, None) for mark in marks])
        return seq

    def take(self, scope: str, epoch: int) -> None:
        """Lock a partition: to the end of the transaction no other writer changes anything of it.

        Raises `Fenced` when a newer epoch was seen.
        """
        found = self.session.run(
            "INSERT INTO {epochs} AS there (index_id, scope, epoch) VALUES (%s, %s, %s) "
            "ON CONFLICT (index_id, scope) DO UPDATE SET epoch = greatest(there.epoch, excluded.epoch) "
            "RETURNING epoch",
            self.index.id,
            scope,
            epoch,
            epochs=self.session.name(EPOCHS),
        )
        refuse_epoch(self.index.name, epoch, found[0][0])

    def look(self, scope: str, epoch: int, marks: Sequence[Mark], *, since: int) -> None:
        """Check epoch and fences. Raises `Fenced` when a newer epoch, or after version `since` a newer fence of a
        slice, was seen. Takes nothing: it only spares the work of what would be refused in the end.
        """
        refuse_epoch(self.index.name, epoch, self.epoch(scope))
        self._refuse_slices(marks, since=since)

    def epoch(self, scope: str) -> int:
        """The newest that was seen of a partition; 0 if none."""
        found = self.session.run(
            "SELECT epoch FROM {epochs} WHERE index_id = %s AND scope = %s",
            self.index.id,
            scope,
            epochs=self.session.name(EPOCHS),
        )
        return int(found[0][0]) if found else 0

    def _refuse_slices(self, marks: Sequence[Mark], *, since: int) -> None:
        found = self.session.run(
            "SELECT slice, max(fence) FROM {marks} WHERE index_id = %s AND slice = ANY(%s) AND seq > %s GROUP BY slice",
            self.index.id,
            [mark.slice_id for mark in marks],
            since,
            marks=self.session.name(MARKS),
        )
        refuse_fences(marks, dict(found))

    def find(self, attempt: str) -> int | None:
        """The version that this attempt made, if it is in."""
        found = self.session.run(
            "SELECT seq FROM {commits} WHERE index_id = %s AND attempt = %s",
            self.index.id,
            attempt,
            commits=self.session.name(COMMITS),
        )
        return int(found[0][0]) if found else None

    def attempts(self, *, since: int) -> list[str]:
        """The attempts that made a version after this one."""
        found = self.session.run(
            "SELECT attempt FROM {commits} WHERE index_id = %s AND seq > %s",
            self.index.id,
            since,
            commits=self.session.name(COMMITS),
        )
        return [attempt for (attempt,) in found]

    def commit(self, scope: str, epoch: int, attempt: str, marks: Sequence[Mark], *, base: int) -> int:
        """Record it, once `take` has passed: in the same transaction as its rows."""
        self._refuse_slices(marks, since=base)
        seq = self._next()
        self.session.run(
            "INSERT INTO {commits} (index_id, attempt, scope, epoch, seq) VALUES (%s, %s, %s, %s, %s)",
            self.index.id,
            attempt,
            scope,
            epoch,
            seq,
            commits=self.session.name(COMMITS),
        )
        self._mark(seq, scope, epoch, marks)
        return seq

    def committed(self, since: int, slice_ids: Iterable[str]) -> dict[str, bytes]:
        """See `DocumentTarget.committed`. Of several commits of a slice that with the highest fence counts."""
        return dict(
            self.session.run(
                "SELECT DISTINCT ON (slice) slice, outcome FROM {marks} WHERE index_id = %s AND slice = ANY(%s) "
                "AND seq > %s AND outcome IS NOT NULL ORDER BY slice, fence DESC, seq DESC",
                self.index.id,
                sorted(set(slice_ids)),
                since,
                marks=self.session.name(MARKS),
            )
        )

    def forget(self, keep_seconds: float) -> None:
        """Drop records of epochs that are over, once they are old."""
        for table in (COMMITS, MARKS):
            self.session.run(
                "DELETE FROM {table} AS there WHERE index_id = %s "
                "AND at < clock_timestamp() - make_interval(secs => %s) "
                "AND EXISTS (SELECT 1 FROM {epochs} AS newest WHERE newest.index_id = there.index_id "
                "AND newest.scope = there.scope AND newest.epoch > there.epoch)",
                self.index.id,
                keep_seconds,
                table=self.session.name(table),
                epochs=self.session.name(EPOCHS),
            )

    def _next(self) -> int:
        """Take a version. Versions are in the order of commits: the holder of one is the only one until its end."""
        found = self.session.run(
            "UPDATE {indexes} SET seq = seq + 1, at = clock_timestamp() WHERE id = %s RETURNING seq",
            self.index.id,
            indexes=self.session.name(INDEXES),
        )
        if not found:
            # Dropped since it was looked up, and perhaps made again under another id.
            known(self.session, self.index.name)
            raise Fenced(f"{self.index.name} was dropped and made again")
        return int(found[0][0])

    def _mark(self, seq: int, scope: str, epoch: int, marks: Sequence[tuple[str, int, bytes | None]]) -> None:
        if marks:
            slices, fences, outcomes = zip(*marks, strict=True)
            self.session.run(
                "INSERT INTO {marks} (index_id, scope, epoch, seq, slice, fence, outcome) "
                "SELECT %s, %s, %s, %s, * FROM unnest(%s::text[], %s::bigint[], %b::bytea[])",
                self.index.id,
                scope,
                epoch,
                seq,
                list(slices),
                list(fences),
                list(outcomes),
                marks=self.session.name(MARKS),
            )


class _Landed(Exception):
    """Another try of this commit was quicker."""

    def __init__(self, version: int) -> None:
        self.version = version


def commit(
    session: Session,
    index: Index,
    move: Callable[[], list[str]],
    *,
    base: int,
    epoch: int,
    attempt: str,
    marks: Sequence[Mark],
    scope: str = "",
) -> int:
    """See `DocumentTarget.commit`. `move` puts in what was staged, and returns the tables of staged rows
    that are not needed once this is committed.
    """
    journal = Journal(session, index)
    used: list[str] = []
    try:
        with session.transaction():
            _demand_new(journal, attempt)
            journal.look(scope, epoch, marks, since=base)
            used = move()
            journal.take(scope, epoch)
            _demand_new(journal, attempt)
            version = journal.commit(scope, epoch, attempt, marks, base=base)
    except _Landed as landed:
        version = landed.version
    except Conflict:
        # Its staged rows are gone: because they are in, maybe.
        found = journal.find(attempt)
        if found is None:
            raise
        version = found
    staging.remove(session, used)
    return version


def _demand_new(journal: Journal, attempt: str) -> None:
    version = journal.find(attempt)
    if version is not None:
        raise _Landed(version)
