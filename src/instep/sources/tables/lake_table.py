"""Rows of a table that keeps its versions, as a source of tables: read without Spark, in this process or in tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.types import arrow_type
from instep.domain.columns import STRING, TIMESTAMP, Column, ColumnType
from instep.domain.keys import Key
from instep.domain.refs import Scope
from instep.domain.rows import Histogram, RowColumns, Selection
from instep.domain.seen import Look, RowMark
from instep.domain.table_files import Files, TableFile
from instep.domain.table_versions import Between, TableVersion, Unfollowable, VersionWindow
from instep.errors import UserError
from instep.sources.tables.lake import OTHER_COLUMN
from instep.sources.tables.lakes import SignedRows
from instep.sources.tables.net_changes import Flags, NetChanges, Numbers, changed_rows, key_numbers, marks
from instep.sources.tables.parquet import kind_of
from instep.sources.tables.predicates import within
from instep.sources.tables.samples import FEWEST_KEYS, KEYS_PER_BIN, binned, keys
from instep.sources.tables.table_source import Sessions, demand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Stands for the number of a portion: all of them.
EACH: Final = -1

#: A column for the signs, beside those of the table.
_SIGN: Final = "instep sign"


class VersionedRows(Protocol):
    """A table whose versions can be read one by one, and compared. Picklable: tasks read it."""

    @property
    def unit(self) -> str:
        """The word for one of its versions."""

    @property
    def text(self) -> str:
        """The place of the table, for people; without secrets."""

    def version(self) -> TableVersion:
        """The version that it has now."""

    def demand_past(self, before: TableVersion) -> None:
        """Raises `Unfollowable` where this version is none of its past."""

    def size(self) -> int:
        """The number of rows, about, without reading them."""

    def note(self) -> str | None:
        """Something that a user may want to know of how its changes are read."""

    def schema(self) -> pa.Schema:
        """The columns that it has now."""

    def signed_portions(self, between: Between) -> int:
        """The number of portions in which changes can be read. Raises `Unfollowable`."""

    def signed(self, names: Sequence[str], between: Between, number: int) -> Iterator[SignedRows]:
        """These columns of rows that came and went, in one of the portions. Raises `Unfollowable`."""

    def portions(self, version: int) -> int:
        """The number of portions in which the rows of a version can be read. Raises `Unfollowable`."""

    def portion(self, version: int, names: Sequence[str], number: int) -> Iterator[pa.RecordBatch]:
        """These columns of one of the portions. Raises `Unfollowable`."""


@dataclass(frozen=True)
class LakeTable:
    """Implements `table_source.TableSource` for rows that have versions; a selection without one is of the version that
    the table has now. `wanted` are the columns that are read: a row in which others were changed has not changed.
    `used` are the columns that may be read at all, if not all of them: others may be of any type.

    What is known of a window, its `NetChanges`, is kept for the next who asks for it: a wave, after its plan.
    """

    rows: VersionedRows
    wanted: tuple[Column, ...] = ()
    used: frozenset[str] | None = None
    _known: dict[tuple[Any, ...], NetChanges] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return LakeTable, (self.rows, self.wanted, self.used)

    def reading(self, columns: Sequence[Column]) -> LakeTable:
        """The same table, of which these columns are read."""
        made = replace(self, wanted=tuple(columns))
        object.__setattr__(made, "_known", self._known)
        return made

    @property
    def text(self) -> str:
        return self.rows.text

    @property
    def missing_extra(self) -> None:
        return None

    def columns(self, spark: Sessions | None = None) -> tuple[Column, ...]:
        found = []
        for each in self.rows.schema():
            kind = kind_of(each.type)
            if kind is None or pa.types.is_nested(each.type):
                if self.used is not None and each.name not in self.used:
                    continue
                said = f"{each.name!r} is {each.type}, which cannot be used here"
                hint = OTHER_COLUMN if self.used else f"{OTHER_COLUMN[:-1]}, or name those to index: `node.properties`."
                raise UserError(said, where=self.text, hint=hint)
            found.append(Column(each.name, kind))
        return tuple(found)

    def files_digest(self) -> None:
        """Nothing: its versions tell more."""

    def state(self) -> None:
        return None

    def files(self) -> Sequence[TableFile] | None:
        return None

    def changed(
        self,
        spark: Sessions,
        rows: RowColumns,
        scope: Scope,
        floor: int,
        others: tuple[Scope, ...] | None = None,
        *,
        known: Files | None = None,
    ) -> bool:
        return True

    def newer(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int | None:
        return self.net(rows, selection).rows

    def look(self, spark: Sessions, rows: RowColumns, selection: Selection, *, floor: int | None, target: int) -> Look:
        raise AssertionError("rows with versions have no watermarks")

    def marks(self, spark: Sessions, rows: RowColumns, selection: Selection, limit: int) -> list[RowMark] | None:
        raise AssertionError("rows with versions have no watermarks")

    def without_watermark(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int:
        return 0

    def histogram(
        self, spark: Sessions, rows: RowColumns, selection: Selection, columns: tuple[str, ...], *, bins: int
    ) -> Histogram:
        wanted = max(bins * KEYS_PER_BIN, FEWEST_KEYS)
        named = self._typed(columns)
        window = selection.versions is not None and selection.versions.since is not None
        stride = max(1, (self.net(rows, selection).rows if window else self.rows.size()) // wanted)
        total = keyed = 0
        found: list[pa.Table] = []
        for batch in self._selected(rows, selection, named):
            with_key = pa.Table.from_batches([batch]).drop_null()
            at = np.arange(-keyed % stride, with_key.num_rows, stride)
            total, keyed = total + batch.num_rows, keyed + with_key.num_rows
            found.append(with_key.take(pa.array(at, pa.int64())))
        empty = pa.schema([pa.field(each.name, arrow_type(each.type)) for each in named]).empty_table()
        return Histogram(total, binned(pa.concat_tables([empty, *found]), keyed, bins))

    def extremes(self, spark: Sessions, rows: RowColumns, selection: Selection, column: str) -> tuple[Key, Key] | None:
        found: list[Any] = []
        for batch in self._selected(rows, selection, self._typed((column,))):
            least_and_most: Any = pc.min_max(batch.column(0))
            found += [each for each in (least_and_most["min"], least_and_most["max"]) if each.is_valid]
        if not found:
            return None
        ends: Any = pc.min_max(pa.array([each.as_py() for each in found], found[0].type))
        low, high = keys(pa.table({column: pa.array([ends[name].as_py() for name in ("min", "max")], found[0].type)}))
        return low, high

    def keys(self, rows: RowColumns, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._selected(rows, selection, self._typed(columns))

    def frame(self, spark: Sessions, rows: RowColumns, selection: Selection) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import StructField, StructType

        whole, table = self.of(selection), self.reading(self.columns())
        kinds = [StructField(each.name, from_arrow_type(arrow_type(each.type))) for each in table.wanted]
        count = self.portions(whole)

        def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_numpy().tolist():
                    yield from (found for found, _ in table.read(rows, whole, number))

        return spark().range(0, count, 1, max(1, count)).mapInArrow(read, StructType(kinds))

    # -- versions -----------------------------------------------------------------------------------

    def of(self, selection: Selection) -> Selection:
        """The selection with the version that the table has now, if it has none."""
        if selection.versions is not None:
            return selection
        return replace(selection, versions=VersionWindow(None, self.rows.version().number))

    def net(self, rows: RowColumns, selection: Selection) -> NetChanges:
        """The changes of a window in the end, as far as the wanted columns and the scope tell them: with rows that have
        left the scope for a neighbour. Raises `Unfollowable`.
        """
        asked = (rows.key, selection.scope, selection.versions, self.wanted)
        found = self._known.get(asked)
        if found is None:
            numbers = range(self.portions(selection))
            portions = (self._signed(rows, selection, [selection.scope], number) for number in numbers)
            found = NetChanges.of(portions, rows.key, rows.deleted)
            self._known.clear()
            self._known[asked] = found
        if not selection.neighbours:
            return found
        more = self._known.get((*asked, selection.neighbours))
        if more is None:
            more = self._known[*asked, selection.neighbours] = self._with_elsewhere(rows, selection, found)
        return more

    def _with_elsewhere(self, rows: RowColumns, selection: Selection, net: NetChanges) -> NetChanges:
        """With rows that have left for neighbours whose version has the very same rows: what they come from was never
        seen there, nor will they be. Others are found there.
        """
        versions = selection.versions
        assert versions is not None, "a selection that has versions"
        scopes = defaultdict[int, list[Scope]](list)
        for scope, version in selection.neighbours:
            scopes[version].append(scope)
        keys, found = net.left_keys, net
        for version, same in scopes.items():
            if version == versions.since:
                continue  # In this version they were here.
            come = NetChanges.of(self._with_keys(rows, selection, same, keys), rows.key)
            if not len(come.come):
                continue
            since, until = sorted((version, versions.until))
            apart = replace(selection, versions=VersionWindow(since, until))
            try:
                changes = self._with_keys(rows, apart, same, keys) if since != until else ()
                found = found.with_elsewhere(come, changed_rows(chain.from_iterable(changes), rows.key))
            except Unfollowable:
                continue  # Nor is it for the neighbour: that reads all its rows.
        return found

    def forget(self) -> None:
        """Forget what is known of a window: by now another table, with the same versions, may be at its place."""
        self._known.clear()

    def left(self, rows: RowColumns, selection: Selection, numbers: Numbers) -> tuple[int, bool]:
        """The number of selected rows at the end of a window that are not deleted, and whether some have keys of these
        numbers. Raises `Unfollowable`.
        """
        versions = selection.versions
        assert versions is not None, "a selection that has versions"
        there = replace(selection, versions=VersionWindow(None, versions.until))
        count, met = 0, False
        kept = [each for each in self.columns() if each.name in (*rows.key, rows.deleted)]
        for some in self._selected(rows, there, kept):
            batch = some.filter(pa.array(~marks(some, rows.deleted)))
            count += batch.num_rows
            met = met or bool(np.isin(key_numbers(batch, rows.key), numbers).any())
        return count, met

    def portions(self, selection: Selection) -> int:
        """The number of portions in which a selection can be read. Raises `Unfollowable`."""
        versions = selection.versions
        assert versions is not None, "a selection that has versions"
        if versions.since is None:
            return self.rows.portions(versions.until)
        return self.rows.signed_portions(versions.between)

    def read(
        self, rows: RowColumns, selection: Selection, number: int, net: NetChanges | None = None
    ) -> Iterator[tuple[pa.RecordBatch, Flags]]:
        """The wanted columns of one portion of the selected rows (without ranges), or of `EACH`, with flags of those
        that are gone. `net`: what another process knows of the window. Raises `Unfollowable`.
        """
        versions = selection.versions
        assert versions is not None, "a selection that has versions"
        if versions.since is not None:
            net = net or self.net(rows, selection)
            elsewhere = [each.scope for each in selection.neighbours] if net.elsewhere else []
            scopes = [selection.scope, *elsewhere]
            for each in range(self.portions(selection)) if number == EACH else (number,):
                yield from net.select(self._signed(rows, selection, scopes, each), rows.key, each)
            return
        for batch in self.rows.portion(versions.until, _names(self.wanted, rows), number):
            found = _in_scopes(batch, rows, [selection.scope])
            yield _as(found, self.wanted), np.zeros(found.num_rows, bool)

    def _signed(
        self, rows: RowColumns, selection: Selection, scopes: Sequence[Scope], number: int
    ) -> Iterator[SignedRows]:
        versions = selection.versions
        assert versions is not None, "a selection that has versions"
        for batch, signs in self.rows.signed(_names(self.wanted, rows), versions.between, number):
            both = _in_scopes(batch.append_column(_SIGN, pa.array(signs)), rows, scopes)
            yield SignedRows(_as(both, self.wanted), both.column(_SIGN).to_numpy())

    def _with_keys(
        self, rows: RowColumns, selection: Selection, scopes: Sequence[Scope], keys: Numbers
    ) -> Iterator[Iterator[SignedRows]]:
        """Changes in these namespaces of rows with keys of these numbers, by portions."""

        def portion(number: int) -> Iterator[SignedRows]:
            for batch, signs in self._signed(rows, selection, scopes, number):
                wanted = np.isin(key_numbers(batch, rows.key), keys)
                yield SignedRows(batch.filter(pa.array(wanted)), signs[wanted])

        return map(portion, range(self.portions(selection)))

    def _selected(self, rows: RowColumns, selection: Selection, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        whole = self.of(selection)
        window = whole.versions is not None and whole.versions.since is not None
        table = self if window else self.reading(columns)
        for number in range(self.portions(whole)):
            for batch, _ in table.read(rows, whole, number):
                yield batch.select([each.name for each in columns])

    def _typed(self, names: Sequence[str]) -> list[Column]:
        there = {each.name: each for each in self.columns()}
        demand(names, list(there), self.text)
        for name in names:
            if not there[name].type.keys:
                raise UserError(f"{name!r} is {there[name].type}: rows cannot be cut by it", where=self.text)
        return [there[name] for name in dict.fromkeys(names)]


@contextmanager
def readable(lake: LakeTable) -> Iterator[None]:
    """Turns `Unfollowable` into a `UserError`, where a version has to be read and there is no other way."""
    try:
        yield
    except Unfollowable as why:
        hint = "Repair the table, or read all of it again: instep run --full-refresh"
        raise UserError(f"what was planned cannot be read: {why}", where=lake.text, hint=hint) from None


def _names(columns: Sequence[Column], rows: RowColumns) -> list[str]:
    return list(dict.fromkeys([*(each.name for each in columns), *([rows.scope] if rows.scope else [])]))


def _in_scopes(batch: pa.RecordBatch, rows: RowColumns, scopes: Sequence[Scope]) -> pa.RecordBatch:
    if rows.scope is None or any(each.is_global for each in scopes):
        return batch
    paths: Any = batch.column(rows.scope).cast(pa.string()).dictionary_encode()
    own: Any = within(paths.dictionary, scopes)
    return batch.filter(own.take(paths.indices).fill_null(False))


def _as(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """These columns in the types that they are said to have."""
    found = [_cast(batch.column(each.name), each.type) for each in columns]
    return pa.RecordBatch.from_arrays(found, [each.name for each in columns])


def _cast(values: Any, kind: ColumnType) -> Any:
    wanted: Any = arrow_type(kind)
    if values.type == wanted:
        return values
    if kind == TIMESTAMP:
        return values.cast(pa.timestamp("us", "UTC"), safe=False)
    if kind == STRING and not pa.types.is_string(values.type):
        return values.cast(pa.string())
    return values.cast(wanted)
