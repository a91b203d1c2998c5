"""What every source of tables must do. Inherit `TableSourceContract`, and provide `make` and `sessions`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
import pytest

from instep.domain.cuts import KeyRange, balanced_cuts
from instep.domain.keys import Key, key_of
from instep.domain.refs import GLOBAL, Scope
from instep.domain.rows import RowColumns, Selection, Window
from instep.errors import UserError
from instep.sources.tables.table_source import Sessions, TableSource
from tests.contracts.table_source_rows import (
    COLUMNS,
    INT64_MAX,
    INT64_MIN,
    ROWS,
    START,
    Row,
    a_row,
    cuts,
    in_range,
    micros,
    selected,
    some_rows,
    table_of,
)

#: A new table with these rows. Made again with the same name it has other rows.
Make: TypeAlias = Callable[..., TableSource]

SCOPE = Scope("42/9970/")
NOW = micros(START) + 1_000_000

#: Columns to cut by; with the bounds of a range in their middle.
CUT_BY: list[tuple[tuple[str, ...], Key, Key]] = [
    (("id",), key_of(50), key_of(120)),
    (("name",), key_of("a"), key_of("é")),
    (("name",), key_of("''; DROP TABLE x; --"), key_of("\\'")),
    (("number",), key_of(-10), key_of(20)),
    (("day",), key_of(a_row(30)["day"]), key_of(a_row(130)["day"])),
    (("updated",), key_of(a_row(40)["updated"]), key_of(a_row(90)["updated"])),
    (("amount",), key_of(a_row(30)["amount"]), key_of(a_row(120)["amount"])),
    (("data",), key_of(b"\x20"), key_of(b"\x80\x7f")),
    (("path", "id"), key_of("42/9970/", 60), key_of("42/99700/", 30)),
    (("path", "id"), key_of("42/9970/", 60), key_of("42/9970/", 150)),
    (("path", "name", "id"), key_of("42/", "a"), key_of("42/9970/", "b")),
]


class TableSourceContract:
    """`make(table, name=…)` puts a table of Arrow into the source, whose columns have the types of `SCHEMA`; `sessions`
    gives Spark.
    """

    #: What a column may be called here.
    odd_names: ClassVar[Sequence[str]] = ["plain", "with space", "with.dot", "with`tick", 'with"quote', "it's", "ünï"]

    @pytest.fixture
    def rows(self) -> list[Row]:
        return some_rows()

    @pytest.fixture
    def source(self, make: Make, rows: list[Row]) -> TableSource:
        return make(table_of(rows))

    # -- columns and rows --------------------------------------------------------------------------

    def test_columns_have_our_types(self, source: TableSource, sessions: Sessions) -> None:
        assert source.columns(sessions) == COLUMNS

    def test_all_rows_come_with_all_columns(self, source: TableSource, sessions: Sessions, rows: list[Row]) -> None:
        frame = source.frame(sessions, ROWS, Selection())
        assert frame.columns == [each.name for each in COLUMNS]
        assert listed(frame) == comparable(rows)

    def test_a_column_may_have_any_name(self, make: Make, sessions: Sessions) -> None:
        names = tuple(self.odd_names)
        source = make(pa.table({name: [f"{number}/" for number in range(10)] for name in names}))
        assert [each.name for each in source.columns(sessions)] == list(names)
        lower, upper = key_of(*["3/"] * len(names)), key_of(*["7/"] * len(names))
        wanted = Selection(Scope("4/"), cut_by=names, ranges=(KeyRange(lower, upper),))
        found = source.frame(sessions, RowColumns(key=names, scope=names[-1]), wanted).toArrow().to_pylist()
        assert found == [dict.fromkeys(names, "4/")]
        assert source.histogram(sessions, RowColumns(names), Selection(), names, bins=3).rows == 10
        for name in names[2:4]:
            assert source.extremes(sessions, RowColumns(names), Selection(), name) == (key_of("0/"), key_of("9/"))

    def test_an_empty_table_has_columns_and_no_rows(self, make: Make, sessions: Sessions) -> None:
        source = make(table_of([]))
        assert source.columns(sessions) == COLUMNS
        assert listed(source.frame(sessions, ROWS, Selection())) == []
        assert source.histogram(sessions, ROWS, Selection(), ("id",), bins=10) == (0, [])
        assert source.extremes(sessions, ROWS, Selection(), "id") is None
        assert not source.changed(sessions, ROWS, GLOBAL, 0)

    # -- scopes and windows ------------------------------------------------------------------------

    def test_a_scope_holds_its_namespaces_and_no_neighbours(
        self, source: TableSource, sessions: Sessions, rows: list[Row]
    ) -> None:
        check_selected(source, sessions, rows, *(Selection(Scope(f"{path}/")) for path in ("42/9970", "42", "4", "7")))

    @pytest.mark.parametrize(
        "others", [(), ("42/9970", "43"), ("1", "4", "42/997", "420", "999")], ids=["none", "some", "many"]
    )
    def test_with_the_other_namespaces_come_rows_that_are_in_none(
        self, source: TableSource, sessions: Sessions, rows: list[Row], others: tuple[str, ...]
    ) -> None:
        """A row without a namespace too."""
        scopes = tuple(Scope.parse(each) for each in others)
        window = Window(micros(START) + 50, micros(START) + 250)
        wanted = Selection(Scope("42/99700/"), window, others=scopes)
        check_selected(source, sessions, rows, wanted)
        found = source.histogram(sessions, ROWS, wanted, ("path",), bins=10).rows
        assert found == len(selected(rows, ROWS, wanted))
        inside = selected(rows, ROWS, Selection(Scope("42/99700/"), others=scopes))
        latest, last = (max(micros(row["updated"]) for row in some if row["updated"]) for some in (inside, rows))
        assert source.changed(sessions, ROWS, Scope("42/99700/"), latest - 1, scopes)
        assert not source.changed(sessions, ROWS, Scope("42/99700/"), last, scopes)

    @pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
    def test_a_window_is_exact_in_any_time_zone_of_the_session(
        self, source: TableSource, sessions: Sessions, rows: list[Row], zone: str
    ) -> None:
        session = sessions()
        before = session.conf.get("spark.sql.session.timeZone")
        session.conf.set("spark.sql.session.timeZone", zone)
        try:
            low, high = (micros(START + timedelta(microseconds=number)) for number in (50, 60))
            windows = (Window(low, high), Window(None, high), Window(high, high + 1))
            check_selected(source, sessions, rows, *(Selection(window=window) for window in windows))
            assert source.changed(sessions, ROWS, GLOBAL, micros(START) + 200)
            assert not source.changed(sessions, ROWS, GLOBAL, micros(START) + 206)
        finally:
            session.conf.set("spark.sql.session.timeZone", before or "UTC")

    def test_the_first_window_has_rows_without_a_watermark_and_none_that_is_deleted(
        self, source: TableSource, sessions: Sessions, rows: list[Row]
    ) -> None:
        check_selected(source, sessions, rows, Selection(window=Window(None, NOW)))

    def test_a_later_window_has_deleted_rows(self, source: TableSource, sessions: Sessions, rows: list[Row]) -> None:
        wanted = Selection(SCOPE, Window(micros(START) + 20, NOW))
        assert any(row["gone"] for row in selected(rows, ROWS, wanted))
        check_selected(source, sessions, rows, wanted)

    def test_a_window_may_have_rows_without_a_watermark(
        self, source: TableSource, sessions: Sessions, rows: list[Row]
    ) -> None:
        wanted = Selection(window=Window(micros(START) + 150, NOW, unmarked=True))
        assert any(row["updated"] is None for row in selected(rows, ROWS, wanted))
        check_selected(source, sessions, rows, wanted)

    def test_a_look_tells_what_is_new_and_what_is_below(
        self, make: Make, source: TableSource, sessions: Sessions, rows: list[Row]
    ) -> None:
        check_looks(make, source, sessions, rows)

    def test_keys_come_without_spark_or_not_at_all(self, source: TableSource, rows: list[Row]) -> None:
        """Of what is selected, in these columns."""
        for selection in (Selection(), Selection(SCOPE)):
            found = source.keys(ROWS, selection, ["id", "gone"])
            if found is None:
                return
            table = pa.Table.from_batches(found)
            assert table.column_names == ["id", "gone"]
            wanted = [(row["id"], row["gone"]) for row in selected(rows, ROWS, selection)]
            assert sorted(zip(*(each.to_pylist() for each in table.columns), strict=True), key=repr) == sorted(
                wanted, key=repr
            )

    # -- ranges ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("some", [CUT_BY[:4], CUT_BY[4:8], CUT_BY[8:]], ids=["texts", "others", "several"])
    def test_every_row_comes_with_the_range_that_it_is_in(
        self, source: TableSource, sessions: Sessions, rows: list[Row], some: list[tuple[tuple[str, ...], Key, Key]]
    ) -> None:
        wanted = [
            Selection(SCOPE if "path" not in columns else GLOBAL, Window(None, NOW), columns, (one,))
            for columns, lower, upper in some
            for one in cuts((lower, upper))
        ]
        for selection, came in zip(wanted, ids(source, sessions, wanted), strict=True):
            must = {row["id"] for row in selected(rows, ROWS, selection)}
            assert must, f"a range that holds nothing shows nothing: {selection}"
            assert must <= set(came), selection
            assert len(came) == len(set(came)), selection

    def test_many_ranges_come_at_once(self, source: TableSource, sessions: Sessions, rows: list[Row]) -> None:
        every = cuts([key_of(number) for number in range(2, 200, 9)])
        wanted = [Selection(cut_by=("id",), ranges=each) for each in (every[::2], every, tuple(reversed(every[5:9])))]
        for selection, came in zip(wanted, ids(source, sessions, wanted), strict=True):
            assert {row["id"] for row in selected(rows, ROWS, selection)} <= set(came)
            assert len(came) == len(set(came))

    def test_rows_outside_a_range_are_not_read_for_nothing(
        self, source: TableSource, sessions: Sessions, rows: list[Row]
    ) -> None:
        wanted = Selection(cut_by=("id",), ranges=(KeyRange(key_of(50), key_of(60)),))
        found = source.frame(sessions, ROWS, wanted).toArrow().column("id").to_pylist()
        assert sorted(found) == list(range(50, 60))

    def test_rows_that_are_asked_for_by_their_keys_come_and_few_others(
        self, source: TableSource, sessions: Sessions, rows: list[Row]
    ) -> None:
        """Whatever the types and texts of the keys. Of one column no others come."""
        columns = ("id", "name", "day", "updated", "amount", "data", "number")
        whole = [row for row in rows if all(row[name] is not None for name in columns)]
        keys = tuple(key_of(*(row[name] for name in columns)) for row in whole[::3])
        assert len(keys) > 20
        found = source.frame(sessions, RowColumns(columns), Selection(keys=keys)).toArrow()
        assert sorted(found.column("id").to_pylist()) == sorted(row["id"] for row in whole[::3])
        one = RowColumns(("name",))
        names = source.frame(sessions, one, Selection(keys=(key_of("a"), key_of("nowhere")))).toArrow().column("name")
        assert names.to_pylist() == [row["name"] for row in rows if row["name"] == "a"]

    # -- histograms --------------------------------------------------------------------------------

    @pytest.mark.parametrize("columns", [("name",), ("path", "day"), ("amount",), ("updated", "data")])
    def test_a_small_histogram_is_exact_and_in_our_order(
        self, source: TableSource, sessions: Sessions, rows: list[Row], columns: tuple[str, ...]
    ) -> None:
        wanted = Selection(window=Window(None, NOW))
        found = source.histogram(sessions, ROWS, wanted, columns, bins=1000)
        chosen = selected(rows, ROWS, wanted)
        keyed = [[row[name] for name in columns] for row in chosen]
        counts = Counter(key_of(*values) for values in keyed if None not in values)
        assert found.rows == len(chosen)
        assert [(each.key, each.rows) for each in found.bins] == sorted(counts.items())

    def test_a_later_window_is_counted_before_it_is_read(
        self, source: TableSource, sessions: Sessions, rows: list[Row]
    ) -> None:
        for scope in (GLOBAL, SCOPE):
            check_counted(source, sessions, rows, Selection(scope, Window(micros(START) + 20, micros(START) + 150)))

    def test_a_histogram_has_about_as_many_bins_as_are_asked_for(self, make: Make, sessions: Sessions) -> None:
        source = make(table_of([a_row(number) for number in range(4000)]))
        found = source.histogram(sessions, ROWS, Selection(), ("id",), bins=20)
        assert found.rows == sum(each.rows for each in found.bins) == 4000
        assert 10 <= len(found.bins) <= 41
        assert all(before.key < after.key for before, after in pairwise(found.bins))
        largest = max(true_rows(cut.range, range(4000)) for cut in balanced_cuts(found.bins, 4))
        assert largest <= 1500

    def test_one_value_of_nearly_all_rows_is_one_bin(self, make: Make, sessions: Sessions) -> None:
        """It has to be seen: it cannot be cut, and its neighbours can."""
        numbers = [number if number % 100 == 0 else 5000 for number in range(4000)]
        source = make(table_of([a_row(at, number=number) for at, number in enumerate(numbers)]))
        found = source.histogram(sessions, ROWS, Selection(), ("number",), bins=20)
        assert found.rows == 4000
        largest = max(found.bins, key=lambda each: each.rows)
        assert largest.key == key_of(5000)
        assert 3700 <= largest.rows <= 4000
        assert len(found.bins) >= 2

    def test_rows_without_a_key_are_counted_and_in_no_bin(self, make: Make, sessions: Sessions) -> None:
        source = make(table_of([a_row(number, name=None) for number in range(10)]))
        assert source.histogram(sessions, ROWS, Selection(), ("name",), bins=10) == (10, [])
        assert source.histogram(sessions, ROWS, Selection(), ("id", "name"), bins=10) == (10, [])
        assert source.extremes(sessions, ROWS, Selection(), "name") is None

    def test_the_ends_of_a_column(self, source: TableSource, sessions: Sessions, rows: list[Row]) -> None:
        assert source.extremes(sessions, ROWS, Selection(), "id") == (key_of(INT64_MIN), key_of(INT64_MAX))
        for column in ("day", "updated"):
            values = [row[column] for row in selected(rows, ROWS, Selection(SCOPE)) if row[column] is not None]
            found = source.extremes(sessions, ROWS, Selection(SCOPE), column)
            assert found == (key_of(min(values)), key_of(max(values)))

    # -- what has changed --------------------------------------------------------------------------

    def test_something_changed_or_nothing(self, source: TableSource, sessions: Sessions, rows: list[Row]) -> None:
        latest = max(row["updated"] for row in rows if row["updated"] is not None)
        assert source.changed(sessions, ROWS, GLOBAL, micros(latest) - 1)
        assert not source.changed(sessions, ROWS, GLOBAL, micros(latest))

    def test_false_is_certain_in_a_scope_too(self, source: TableSource, sessions: Sessions, rows: list[Row]) -> None:
        inside = [row["updated"] for row in selected(rows, ROWS, Selection(SCOPE)) if row["updated"] is not None]
        assert source.changed(sessions, ROWS, SCOPE, micros(max(inside)) - 1)
        assert not source.changed(sessions, ROWS, Scope("7/"), 0)

    @pytest.mark.parametrize("scope", [GLOBAL, Scope("42/"), Scope("7/")], ids=str)
    def test_rows_without_a_watermark_are_counted(
        self, make: Make, sessions: Sessions, rows: list[Row], scope: Scope
    ) -> None:
        """Those that a first window reads: deleted ones are not among them."""
        paths = ("42/9970/", "42/1/", "43/1/", None)
        lost = [a_row(1_000 + n, path=path, updated=None, gone=n == 1) for n, path in enumerate(paths)]
        source = make(table_of([*rows, *lost]))
        selection = Selection(scope, Window(None, NOW))
        expected = sum(row["updated"] is None for row in selected([*rows, *lost], ROWS, selection))
        assert source.without_watermark(sessions, ROWS, selection) == expected
        assert source.without_watermark(sessions, RowColumns(key=("id",)), selection) == 0

    def test_its_state_differs_when_rows_have_changed(self, make: Make, rows: list[Row]) -> None:
        before = make(table_of(rows), name="same").state()
        after = make(table_of(rows[1:]), name="same").state()
        assert before is None or before != after

    def test_its_state_stays_when_nothing_changed(self, source: TableSource) -> None:
        assert source.state() == source.state()

    # -- what is wrong -----------------------------------------------------------------------------

    def test_a_column_that_is_not_there(self, source: TableSource, sessions: Sessions) -> None:
        with pytest.raises(UserError, match="updatet") as raised:
            source.frame(sessions, RowColumns(key=("id",), watermark="updatet"), Selection())
        assert "updated" in str(raised.value)
        assert "amount" in str(raised.value)
        with pytest.raises(UserError, match="'nothing'"):
            source.histogram(sessions, ROWS, Selection(), ("nothing",), bins=10)

    def test_a_watermark_has_to_be_a_timestamp(self, source: TableSource, sessions: Sessions) -> None:
        with pytest.raises(UserError, match=r"'number'.*timestamp"):
            source.frame(sessions, RowColumns(key=("id",), watermark="number"), Selection(window=Window(None, NOW)))

    def test_floating_point_cannot_be_cut(self, source: TableSource, sessions: Sessions) -> None:
        with pytest.raises(UserError, match="'score'"):
            source.histogram(sessions, ROWS, Selection(), ("score",), bins=10)

    def test_the_shown_location_holds_no_secret(self, source: TableSource) -> None:
        assert source.text
        assert not re.search(r"hunter2|s3cret|://[^/]*@", source.text + repr(source))


def listed(frame: Any) -> list[str]:
    return comparable(frame.toArrow().to_pylist())


def comparable(rows: Sequence[Row]) -> list[str]:
    """One text for each row: NaN is equal to nothing."""
    return sorted(repr({name: _plain(value) for name, value in row.items()}) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value.normalize(), "f")
    return value.isoformat() if isinstance(value, date) else value


def ids(source: TableSource, sessions: Sessions, wanted: Sequence[Selection]) -> list[list[int]]:
    """The column `id` of what each selection brings, in one job of Spark's."""
    frames = [source.frame(sessions, ROWS, each).selectExpr(f"{at} AS at", "id") for at, each in enumerate(wanted)]
    found = reduce(lambda some, more: some.unionAll(more), frames).toArrow().to_pylist()
    return [[row["id"] for row in found if row["at"] == at] for at in range(len(wanted))]


def check_looks(make: Make, source: TableSource, sessions: Sessions, rows: list[Row]) -> None:
    """In a margin, in all of the table, and when one row has come or is another."""
    if source.files() is not None:
        return  # Nobody looks.
    start, floor, target = (micros(START) + number for number in (100, 150, 190))
    margin = Selection(window=Window(start, target, unmarked=True))
    below = [row for row in selected(rows, ROWS, margin) if row["updated"] is None or micros(row["updated"]) <= floor]
    look = source.look(sessions, ROWS, margin, floor=floor, target=target)
    assert look[:3] == (target, 1, len(below))
    assert source.look(sessions, ROWS, margin, floor=floor, target=target) == look
    here = [micros(row["updated"]) for row in selected(rows, ROWS, Selection(SCOPE)) if row["updated"]]
    latest = max(each for each in here if each <= floor)
    assert source.look(sessions, ROWS, Selection(SCOPE), floor=None, target=floor)[:3] == (latest, 0, 0)
    found = source.marks(sessions, ROWS, Selection(window=Window(start, floor, unmarked=True)), len(below))
    assert found is not None
    marks = [(each.key, each.watermark) for each in found]
    assert sorted(marks) == sorted((str(row["id"]), row["updated"] and micros(row["updated"])) for row in below)
    assert len({each.digest for each in found}) == len(below)
    assert source.marks(sessions, ROWS, margin, len(below) - 1) is None

    late = a_row(5_000, updated=START + timedelta(microseconds=120))
    unmarked = [row | {"number": 77} if row["updated"] is None else row for row in rows]
    for name, others, came in (("late", [*rows, late], {"5000"}), ("unmarked", unmarked, {"203"})):
        other = make(table_of(others), name=f"look_{name}")
        assert other.look(sessions, ROWS, margin, floor=floor, target=target)[1:] != look[1:]
        marked = other.marks(sessions, ROWS, Selection(window=Window(start, floor, unmarked=True)), 1_000)
        assert {each.key for each in marked or () if each.digest not in {one.digest for one in found}} == came


def check_selected(source: TableSource, sessions: Sessions, rows: list[Row], *wanted: Selection) -> None:
    """Exactly these rows: there are no ranges."""
    for selection, came in zip(wanted, ids(source, sessions, wanted), strict=True):
        assert sorted(came) == sorted(row["id"] for row in selected(rows, ROWS, selection)), selection


def check_in_short(source: TableSource, sessions: Sessions, rows: list[Row]) -> None:
    """The heart of the contract: columns, rows, a window, and ranges in it."""
    assert source.columns(sessions) == COLUMNS
    assert listed(source.frame(sessions, ROWS, Selection())) == comparable(rows)
    window = Window(micros(START) + 20, NOW)
    check_selected(source, sessions, rows, Selection(SCOPE, window))
    check_counted(source, sessions, rows, Selection(SCOPE, window))
    wanted = [Selection(SCOPE, window, ("id",), (one,)) for one in cuts([key_of(60), key_of(120)])]
    for selection, came in zip(wanted, ids(source, sessions, wanted), strict=True):
        assert {row["id"] for row in selected(rows, ROWS, selection)} <= set(came)
        assert len(came) == len(set(came))


def check_counted(source: TableSource, sessions: Sessions, rows: list[Row], wanted: Selection) -> None:
    """No fewer than there are, if it can tell; and its bins have them all."""
    there = selected(rows, ROWS, wanted)
    assert there
    most = source.newer(sessions, ROWS, wanted)
    assert most is None or most >= len(there)
    found = source.histogram(sessions, ROWS, wanted, ("id",), bins=1000)
    assert found.rows == len(there)
    assert [each.key for each in found.bins] == sorted(key_of(row["id"]) for row in there)


def true_rows(one: KeyRange, values: Sequence[int]) -> int:
    return sum(in_range([value], one) for value in values)
