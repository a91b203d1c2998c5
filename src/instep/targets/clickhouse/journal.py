"""Journal of fences and commits of a physical index, a table of its own; and aliases: promotions, views for readers.

In process it is read and written under the engine's lock, so a check and what follows it are one step. A server has no
such step: there the last check is in the very statement that writes rows (`GUARD`), and what still slips past it is an
older row, which changes nothing.

Promotions of aliases have a record (`instep_aliases`), which decides, and views for readers. A view is replaced in one
step; those of one alias follow one after another, the own one last. It says of which index it is, so that a promotion
that broke off can be told from one that is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from instep.clickhouse.session import FENCED, Absent, Session, literal, quoted, records
from instep.domain.waves import Mark
from instep.errors import Conflict, Fenced
from instep.targets.clickhouse import reading
from instep.targets.clickhouse.layout import journal, stored_specs
from instep.targets.journal import refuse_epoch, refuse_fences
from instep.targets.request_limits import portions
from instep.targets.table_target import OWN, TableSpec

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
        refuse_epoch(self.physical, epoch, newest)
        refuse_fences(marks, self._fences(since, [mark.slice_id for mark in marks]))
        return last

    def _fences(self, since: int, slice_ids: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for some in portions(slice_ids, _MARKS_AT_ONCE):
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
        for some in portions(sorted(set(slice_ids)), _MARKS_AT_ONCE):
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


_ALIASES = "instep_aliases"


class Promotion(NamedTuple):
    """`scope` is the partition that moved the alias, `physical` None where nothing is served any more."""

    scope: str
    epoch: int
    physical: str | None


class _Known(NamedTuple):
    """The highest number so far, what was promoted under it, and what the partition that asks promoted last. `owner`:
    whose the alias is, as the record of the highest number says.
    """

    number: int
    newest: Promotion | None
    own: Promotion | None
    owner: str = ""


def promote(
    session: Session,
    database: str,
    alias: str,
    promotion: Promotion,
    specs: Sequence[TableSpec] = (),
    *,
    owner: str = "",
) -> None:
    """See `TableTarget.promote`. `specs` are those of what is promoted; the alias is the `owner`'s from then on."""
    epoch, physical = promotion.epoch, promotion.physical
    # Asked before anything is checked: a concurrent promotion has the same number, and came first.
    known = _known(session, database, alias, promotion.scope)
    if known is None:
        _create(session, database)
        known = _Known(0, None, None)
    _refuse_older(alias, promotion, known.own)
    if new := known.own is None or known.own.epoch < epoch:
        _refuse_superseded(session, database, alias, promotion, known.newest)
        number, kinds = _next_number(promotion, known.number), [each.kind for each in specs]
        _record(session, database, alias, promotion, owner, number=number, kinds=kinds)
    elif known.owner != owner:
        claim(session, database, alias, owner)
    known = _show_newest(session, database, alias, promotion, specs)
    _refuse_older(alias, promotion, known.own)
    serves = known.newest if new else known.own
    if serves is not None and serves.physical != physical:
        raise Conflict(f"alias {alias!r}: epoch {epoch} serves {serves.physical}, so it cannot serve {physical}")


def claim(session: Session, database: str, alias: str, owner: str) -> None:
    """The last promotion again, for this owner: what is served stays."""
    known = _known(session, database, alias, "")
    if known is None:
        _create(session, database)
        known = _Known(0, None, None)
    kinds = sorted(_once_shown(session, database, alias))
    newest = known.newest or Promotion("", 0, served(session, database, alias))
    _record(session, database, alias, newest, owner, number=known.number + 1, kinds=kinds)


def last(session: Session, database: str, alias: str) -> tuple[str, str | None] | None:
    """The owner of the alias and what was promoted, by the last promotion; None if nothing ever was."""
    known = _known(session, database, alias, "")
    return (known.owner, known.newest.physical) if known and known.newest else None


def _create(session: Session, database: str) -> None:
    session.command(f"CREATE DATABASE IF NOT EXISTS {quoted(database)} ENGINE = Atomic")
    session.command(
        f"CREATE TABLE IF NOT EXISTS {quoted(database, _ALIASES)} (alias String, number UInt64, scope String, "
        "epoch UInt64, physical Nullable(String), kinds Array(String), at DateTime64(6, 'UTC') DEFAULT now64(6), "
        "owner String) ENGINE = MergeTree ORDER BY (alias, number)"
    )


def _refuse_older(alias: str, promotion: Promotion, last: Promotion | None) -> None:
    """`last` is by the same partition."""
    if last and last.epoch > promotion.epoch:
        raise Fenced(f"alias {alias!r}: epoch {promotion.epoch} was superseded by epoch {last.epoch}")


def _refuse_superseded(
    session: Session, database: str, alias: str, promotion: Promotion, newest: Promotion | None
) -> None:
    """Check the epoch. Raises `Fenced` when the served index has seen a newer epoch of the partition."""
    now = newest.physical if newest else None
    if now in (None, promotion.physical) or stored_specs(session, database, now) is None:
        return
    epoch = Journal(session, database, now).epoch(promotion.scope)
    if epoch > promotion.epoch:
        raise Fenced(f"alias {alias!r}: {now} was written under epoch {epoch}, after {promotion.epoch}")


def served(session: Session, database: str, alias: str) -> str | None:
    """The index that readers find: not the one recorded by a process that died before it made its view."""
    said = comments(session, database, alias)
    if not said or said[0]:
        return said[0] if said else None
    known = _known(session, database, alias, "")  # The view was made when they said nothing.
    return known.newest.physical if known and known.newest else None


def comments(session: Session, database: str, alias: str) -> list[str]:
    """The comment of the view of this name, if there is one."""
    found = records(
        session,
        "SELECT comment FROM system.tables WHERE database = {database:String} AND name = {alias:String} "
        "AND engine = 'View'",
        database=database,
        alias=alias,
    )
    return [str(each["comment"]) for each in found]


def _show_newest(
    session: Session, database: str, alias: str, promotion: Promotion, specs: Sequence[TableSpec]
) -> _Known:
    """Bring the views to what was promoted last. Of several that do so at once, the last one to look sees it all."""
    shown = None
    while True:
        known = _known(session, database, alias, promotion.scope)
        assert known is not None
        assert known.newest is not None
        if known.newest == shown:
            return known
        shown = known.newest
        if shown.physical not in (None, promotion.physical):
            specs = stored_specs(session, database, shown.physical) or ()
        _show(session, database, alias, shown.physical, specs)


def _known(session: Session, database: str, alias: str, scope: str) -> _Known | None:
    """None where no index was promoted yet. Of two of one number that which came first."""
    sql = (
        # All columns: a table of earlier versions has none for the owner.
        f"SELECT * FROM {quoted(database, _ALIASES)} WHERE alias = {{alias:String}} "
        "ORDER BY number DESC, at LIMIT 1 BY scope = {scope:String}"
    )
    try:
        found = records(session, sql, alias=alias, scope=scope)
    except Absent:
        return None
    promotions = [Promotion(each["scope"], each["epoch"], each["physical"]) for each in found]
    own = next((each for each in promotions if each.scope == scope), None)
    if not found:
        return _Known(0, None, None)
    return _Known(int(found[0]["number"]), promotions[0], own, str(found[0].get("owner", "")))


def _next_number(promotion: Promotion, last: int) -> int:
    """Epochs of several partitions say nothing about each other: they are numbered one after another. Those of one
    partition alone are the numbers, so that of two at once the newer one counts.
    """
    return last + 1 if promotion.scope else max(last + 1, promotion.epoch)


def _record(
    session: Session, database: str, alias: str, promotion: Promotion, owner: str, *, number: int, kinds: Sequence[str]
) -> None:
    table = quoted(database, _ALIASES)
    session.command(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS owner String")
    session.command(
        f"INSERT INTO {table} (alias, number, scope, epoch, physical, kinds, owner) "
        "SELECT {alias:String}, {number:UInt64}, {scope:String}, {epoch:UInt64}, {physical:Nullable(String)}, "
        "{kinds:Array(String)}, {owner:String}",
        owner=owner,
        alias=alias,
        number=number,
        scope=promotion.scope,
        epoch=promotion.epoch,
        physical=promotion.physical,
        kinds=kinds,
    )


def _show(session: Session, database: str, alias: str, physical: str | None, specs: Sequence[TableSpec]) -> None:
    now = {spec.kind: spec for spec in specs} if physical else {}
    for kind in sorted(now.keys() | _once_shown(session, database, alias), key=lambda each: (each == OWN, each)):
        view = quoted(database, f"{alias}__{kind}" if kind else alias)
        if kind in now:
            rows = reading.select(database, str(physical), now[kind])
            session.command(f"CREATE OR REPLACE VIEW {view} AS {rows} COMMENT {literal(str(physical))}")
        else:
            session.command(f"DROP VIEW IF EXISTS {view}")


def _once_shown(session: Session, database: str, alias: str) -> set[str]:
    """Kinds that any promotion showed."""
    found = records(
        session,
        f"SELECT DISTINCT arrayJoin(kinds) AS kind FROM {quoted(database, _ALIASES)} WHERE alias = {{alias:String}}",
        alias=alias,
    )
    return {each["kind"] for each in found}
