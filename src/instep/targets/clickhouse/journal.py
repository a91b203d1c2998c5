"""Journal of fences and commits in one physical index: a table of its own, `<physical>__instep`.

In process it is read and written under the engine's lock, so a check and what follows it are one step. A server has no
such step: there the last check is in the very statement that writes rows (`GUARD`), and what still slips past it is an
older row, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.clickhouse.session import FENCED, Session, quoted, records
from instep.domain.waves import Mark
from instep.errors import Fenced
from instep.targets.clickhouse.layout import journal

if TYPE_CHECKING:
    import pyarrow as pa

#: Marks are parameters of a statement, and these travel in its address.
_MARKS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Journal:
    """`shared`: other processes write it at the same time (on a server)."""

    session: Session
    database: str
    physical: str
    shared: bool = True

    @property
    def _table(self) -> str:
        return quoted(self.database, journal(self.physical))

    def fence(self, scope: str, epoch: int, marks: Sequence[Mark]) -> int:
        """See `DocumentTarget.fence`."""
        last = self.refuse(scope, epoch, marks)
        fences = [mark._replace(outcome=b"") for mark in marks]
        seq = self._record(fences, seq=last + 1, entry="fence", scope=scope, epoch=epoch, attempt="")
        if self.shared:  # Two may have done so at once.
            self.refuse(scope, epoch, marks)
        return seq

    def epoch(self, scope: str) -> int:
        """The newest that was seen of a partition."""
        return self._newest(scope)[1]

    def _newest(self, scope: str) -> tuple[int, int]:
        """The last version, and the newest epoch of a partition."""
        sql = f"SELECT max(seq) AS seq, maxIf(epoch, scope = {{scope:String}}) AS epoch FROM {self._table}"
        (found,) = records(self.session, sql, scope=scope)
        return int(found["seq"]), int(found["epoch"])

    def refuse(self, scope: str, epoch: int, marks: Sequence[Mark], *, since: int = 0) -> int:
        """Check epoch and fences. Raises `Fenced` when a newer epoch, or after version `since` a newer fence of a
        slice, was seen. Returns the last version.
        """
        last, newest = self._newest(scope)
        if newest > epoch:
            raise Fenced(f"{self.physical}: epoch {epoch} was superseded by epoch {newest}")
        fences = self._fences(since, [mark.slice_id for mark in marks])
        for mark in marks:
            if fences.get(mark.slice_id, mark.fence) > mark.fence:
                raise Fenced(f"slice {mark.slice_id}: fence {mark.fence} was superseded")
        return last

    def _fences(self, since: int, slice_ids: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for some in _chunks(slice_ids):
            rows = records(
                self.session,
                f"SELECT slice, max(fence) AS fence FROM {self._table} WHERE seq > {{since:UInt64}} "
                "AND slice IN {slices:Array(String)} AND slice != '' GROUP BY slice",
                since=since,
                slices=some,
            )
            found |= {row["slice"]: row["fence"] for row in rows}
        return found

    def find(self, attempt: str) -> int | None:
        """The version that this attempt made, if it is in."""
        found = records(
            self.session,
            f"SELECT min(seq) AS seq, count() AS n FROM {self._table} WHERE entry = 'commit' "
            "AND attempt = {attempt:String}",
            attempt=attempt,
        )[0]
        return int(found["seq"]) if found["n"] else None

    def commit(self, scope: str, epoch: int, attempt: str, marks: Sequence[Mark]) -> int:
        last, _ = self._newest(scope)
        return self._record(marks, seq=last + 1, entry="commit", scope=scope, epoch=epoch, attempt=attempt)

    def committed(self, since: int, slice_ids: Iterable[str]) -> dict[str, bytes]:
        """See `DocumentTarget.committed`. Of several commits of a slice that with the highest fence counts."""
        found: dict[str, bytes] = {}
        for some in _chunks(sorted(set(slice_ids))):
            rows = records(
                self.session,
                f"SELECT slice, hex(argMax(outcome, (fence, seq))) AS outcome FROM {self._table} "
                "WHERE entry = 'commit' AND seq > {since:UInt64} AND slice IN {slices:Array(String)} AND slice != '' "
                "GROUP BY slice",
                since=since,
                slices=some,
            )
            found |= {row["slice"]: bytes.fromhex(row["outcome"]) for row in rows}
        return found

    def forget(self, keep_seconds: float) -> None:
        """Drop records of epochs that are over, once they are old."""
        old = (
            "entry != 'specs' AND at < now64(6) - {keep:Float64} "
            f"AND (scope, epoch) NOT IN (SELECT scope, max(epoch) FROM {self._table} GROUP BY scope)"
        )
        (found,) = records(self.session, f"SELECT count() AS n FROM {self._table} WHERE {old}", keep=keep_seconds)
        if found["n"]:  # It rewrites the table, even if there is nothing.
            sql = f"DELETE FROM {self._table} WHERE {old} SETTINGS lightweight_deletes_sync = 2"
            self.session.command(sql, keep=keep_seconds)

    def _record(self, marks: Sequence[Mark], **said: Any) -> int:
        self.session.insert(self._table, _rows(said, marks))
        return int(said["seq"])


def guard(table: str) -> str:
    """The condition of a statement that writes rows: it fails when the writer was superseded."""
    return (
        "throwIf((SELECT count() FROM "
        + table
        + " WHERE (scope = {scope:String} AND epoch > {writer_epoch:UInt64}) OR (seq > {base:UInt64} AND arrayExists("
        + "(s, f) -> s = slice AND f < fence, {slices:Array(String)}, {fences:Array(Int64)}))) > 0, "
        + f"'{FENCED}') = 0"
    )


def guard_values(scope: str, epoch: int, base: int, marks: Sequence[Mark]) -> dict[str, Any]:
    """Parameters of `guard`. Of very many slices only some are looked at again here."""
    some = marks[:_MARKS_AT_ONCE]
    return {
        "scope": scope,
        "writer_epoch": epoch,
        "base": base,
        "slices": [mark.slice_id for mark in some],
        "fences": [mark.fence for mark in some],
    }


def _rows(said: Mapping[str, Any], marks: Sequence[Mark]) -> pa.Table:
    import pyarrow as pa

    # A record without marks is a row all the same.
    marks = marks or [Mark("", 0, b"")]
    rows = [{**said, "slice": mark.slice_id, "fence": mark.fence, "outcome": mark.outcome} for mark in marks]
    columns: list[tuple[str, pa.DataType]] = [
        ("seq", pa.uint64()),
        ("entry", pa.string()),
        ("scope", pa.string()),
        ("epoch", pa.uint64()),
        ("attempt", pa.string()),
        ("slice", pa.string()),
        ("fence", pa.int64()),
        ("outcome", pa.binary()),
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


def _chunks(slice_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (slice_ids[at : at + _MARKS_AT_ONCE] for at in range(0, len(slice_ids), _MARKS_AT_ONCE))
