"""The contract of targets for tables. Inherit `TableTargetContract` and give it a `target`."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from instep.domain.columns import FLOAT64, INT64, STRING, Column
from instep.errors import InstepError, UserError
from instep.targets.table_target import OWN, TableChange, TableSpec, TableTarget
from instep.targets.trial import ALIAS, trial_of_tables
from instep.testing.streamed import as_streamed
from instep.testing.table_merging import MergingContract
from instep.testing.table_rows import (
    EDGES,
    NODES,
    ODD,
    ODD_ROWS,
    SPECS,
    Edge,
    Node,
    Row,
    batch,
    change,
    edges,
    nodes,
    put,
    staged,
)
from instep.testing.table_scopes import TableScopesContract
from instep.testing.table_serving import TableServingContract
from instep.testing.table_writers import TableWritersContract
from instep.testing.target import FailingTarget

LAST = datetime.max.replace(tzinfo=UTC)


class TableTargetContract(MergingContract, TableWritersContract, TableScopesContract, TableServingContract):
    """Inherit, and provide the fixture `target`."""

    #: Rows of every type that the target can hold.
    odd_rows: ClassVar[Sequence[Mapping[str, Any]]] = ODD_ROWS

    # -- being there ---------------------------------------------------------------------------

    def test_check_passes_on_a_good_place(self, target: TableTarget) -> None:
        target.check()
        target.check()

    def test_a_trial_counts_a_row_of_each_host_and_leaves_nothing(
        self, target: TableTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trial = trial_of_tables(target)
        try:
            begun = trial.begun()
            staged = []
            for host in ("one", "two"):
                monkeypatch.setattr("instep.targets.trial.gethostname", lambda host=host: host)
                staged.append(pickle.loads(pickle.dumps(begun)).stage())
            begun.commit(staged)
            assert pickle.loads(pickle.dumps(begun)).rows() == 2
        finally:
            trial.end()
        assert not target.exists(trial.physical)
        assert target.leftovers(ALIAS, idle_seconds=0) == []

    def test_creating_twice_keeps_the_rows(self, target: TableTarget, index: str) -> None:
        put(target, index, Node(1, "one", 1), epoch=1, attempt="1")
        target.create(index, SPECS)
        assert nodes(target, index) == {1: "one"}
        assert target.specs(index) == SPECS

    def test_exists_and_drop(self, target: TableTarget, index: str) -> None:
        assert target.exists(index)
        assert not target.exists("Other")
        put(target, index, Node(1, "one", 1), Edge(1, 2, 1), epoch=1, attempt="1")
        for _ in range(2):
            target.drop(index)
            assert not target.exists(index)
        target.create(index, SPECS)
        assert (nodes(target, index), edges(target, index)) == ({}, {})

    def test_an_index_dropped_and_recreated_forgets_its_commits(self, target: TableTarget, index: str) -> None:
        put(target, index, Node(1, "one", 1), epoch=7, attempt="1")
        target.drop(index)
        target.create(index, SPECS)
        put(target, index, Node(2, "two", 1), epoch=1, attempt="1")
        assert nodes(target, index) == {2: "two"}

    def test_travels_pickled(self, target: TableTarget, index: str) -> None:
        other = pickle.loads(pickle.dumps(target))
        base = other.fence(index, 1)
        writer = pickle.loads(pickle.dumps(other.writer(index, base)))
        part = writer.stage(change([Node(1, "one", 1), Edge(1, 2, 1)]))
        other.commit(index, base=base, epoch=1, attempt="1", staged=[part], marks=[])
        assert (nodes(target, index), edges(target, index)) == ({1: "one"}, {1: 2})

    @pytest.mark.parametrize(
        "name", ["", "..", "a/b", "../a", "a b", "a'b", 'a"b', "a`b", "a\0b", "a;b", "-a", "a" * 300, "é"]
    )
    def test_names_that_could_leave_their_place_are_refused(self, target: TableTarget, name: str) -> None:
        for call in (target.exists, target.served, target.drop, target.rows):
            with pytest.raises(UserError):
                call(name)
        with pytest.raises(UserError):
            target.create(name, SPECS)
        if name:
            with pytest.raises(UserError):
                TableSpec(name, NODES.columns, NODES.key)

    def test_an_index_that_is_not_there_is_a_user_error(self, target: TableTarget) -> None:
        with pytest.raises(UserError, match="Missing"):
            target.rows("Missing")
        with pytest.raises(UserError, match="Missing"):
            target.promote("Node", "Missing", 1)
        assert target.served("Node") is None

    def test_a_target_has_one_node_table_and_one_table_for_each_edge_kind(self, target: TableTarget) -> None:
        for specs in ((), (EDGES,), (NODES, NODES), (NODES, EDGES, EDGES)):
            with pytest.raises(UserError):
                target.create("Node__1", specs)
        assert not target.exists("Node__1")

    def test_drift_names_the_differing_columns(self, target: TableTarget, index: str) -> None:
        assert list(target.drift(index, SPECS)) == []
        columns = (Column("id", INT64), Column("path", STRING), Column("title", INT64), Column("new", FLOAT64))
        changed = TableSpec(OWN, columns, ("path", "id"), "path")
        other = TableSpec("OTHER", EDGES.columns, EDGES.key)
        found = {(each.kind, each.column) for each in target.drift(index, (changed, other))}
        assert found == {(OWN, "path"), (OWN, "title"), (OWN, "new"), (OWN, ""), ("OTHER", ""), ("AUTHOR", "")} or (
            found == {(OWN, "title"), (OWN, "new"), (OWN, ""), ("OTHER", ""), ("AUTHOR", "")}
        )
        with pytest.raises(UserError):
            target.create(index, (changed, EDGES))
        fewer = TableSpec(OWN, NODES.columns[:2], NODES.key, NODES.scope)
        (only,) = target.drift(index, (fewer, EDGES))
        assert (only.kind, only.column, only.expected) == (OWN, "title", "")
        assert {(each.kind, each.expected) for each in target.drift("Missing", SPECS)} == {
            (OWN, "there"),
            ("AUTHOR", "there"),
        }

    # -- writing and reading back --------------------------------------------------------------

    def test_every_type_and_every_name_comes_back_as_it_was(self, target: TableTarget) -> None:
        target.create("Odd__1", [ODD])
        assert list(target.drift("Odd__1", [ODD])) == []
        base = target.fence("Odd__1", 1)
        part = target.writer("Odd__1", base).stage(iter([TableChange(OWN, batch(ODD, self.odd_rows))]))
        target.commit("Odd__1", base=base, epoch=1, attempt="1", staged=[part], marks=[])
        names = [each.name for each in ODD.columns]
        found = target.read("Odd__1", columns=names).to_pylist()
        order = [(each["select"], each["a b\"c'd\\e"]) for each in self.odd_rows]
        assert sorted(found, key=lambda row: order.index((row["select"], row["a b\"c'd\\e"]))) == list(self.odd_rows)
        for row in self.odd_rows:
            stored = target.row("Odd__1", [row[name] for name in ODD.key])
            assert stored is not None
            assert {name: stored[name] for name in names} == row
            assert (stored["_ref"], stored["_version"]) == ("Node@global", 1)
            for name in names:
                if name not in ("float32", "float64"):
                    where = {"select": row["select"], name: row[name]}
                    assert target.read("Odd__1", where=where, columns=names).to_pylist() == [row], name
        assert target.row("Odd__1", ["unknown", 1]) is None
        assert target.read("Odd__1", where={"string": "' OR 1=1 --"}).num_rows == 0

    def test_rows_may_come_as_a_stream_brings_them(self, target: TableTarget) -> None:
        """Spark's and ClickHouse's do: what a library wants of a value of sixteen bytes is not theirs to know."""
        target.create("Odd__1", [ODD])
        base = target.fence("Odd__1", 1)
        rows = as_streamed(batch(ODD, self.odd_rows))
        part = target.writer("Odd__1", base).stage(iter([TableChange(OWN, rows)]))
        target.commit("Odd__1", base=base, epoch=1, attempt="1", staged=[part], marks=[])
        found = target.read("Odd__1", columns=["select", "decimal"]).to_pylist()
        key = itemgetter("select")
        assert sorted(found, key=key) == sorted(
            ({name: row[name] for name in ("select", "decimal")} for row in self.odd_rows), key=key
        )

    #: What of the rows in the next test the target cannot hold, by row.
    unfit_rows: ClassVar[Mapping[int, tuple[str, str]]] = {}

    def test_values_that_fit_are_stored_exactly(self, target: TableTarget) -> None:
        """One batch with all of them: what is unfit is named, and the others are written."""
        keys = ["plain", "".join(map(chr, range(0x100, 0x2000))), "text with NUL", "NUL\0", "text"]
        texts = ["", "long key", "a\0b", "NUL in the key", "x" * 1_000_000]
        dates = [date.min, date.max, None, None, date(1900, 1, 1)]
        rows = [
            dict.fromkeys((each.name for each in ODD.columns), None)
            | {"select": key, "a b\"c'd\\e": at, "string": text, "date": day, "timestamp": moment}
            for at, (key, text, day, moment) in enumerate(
                zip(keys, texts, dates, [datetime.min.replace(tzinfo=UTC), None, None, None, LAST], strict=True)
            )
        ]
        written = batch(ODD, rows)
        found = list(target.unfit(ODD, written.select([each.name for each in ODD.columns])))
        named = {row: (each.column, each.reason) for each in found for row in np.flatnonzero(each.rows).tolist()}
        assert named == dict(self.unfit_rows)
        target.create("Odd__1", [ODD])
        base = target.fence("Odd__1", 1)
        fit = written.filter(pa.array([at not in named for at in range(len(rows))]))
        part = target.writer("Odd__1", base).stage(iter([TableChange(OWN, fit)]))
        target.commit("Odd__1", base=base, epoch=1, attempt="1", staged=[part], marks=[])
        stored = target.read("Odd__1", columns=list(rows[0])).to_pylist()
        assert sorted(stored, key=lambda row: row["a b\"c'd\\e"]) == [
            row for at, row in enumerate(rows) if at not in named
        ]

    def test_a_column_that_is_not_there_is_a_user_error(self, target: TableTarget, index: str) -> None:
        with pytest.raises(UserError, match="nope"):
            target.read(index, columns=["nope"])
        with pytest.raises(UserError, match="nope"):
            target.read(index, where={"nope' OR 1=1 --": 1})
        with pytest.raises(UserError, match="NOPE"):
            target.read(index, "NOPE")

    @pytest.mark.parametrize("column", ["id", "_version", "_deleted"])
    def test_a_row_without_its_key_is_a_user_error_that_names_the_column(
        self, target: TableTarget, index: str, column: str
    ) -> None:
        writer = target.writer(index, target.fence(index, 1))
        good = {"id": 1, "path": "1/", "title": "x"}
        with pytest.raises(UserError, match=column):
            writer.stage(iter([TableChange(OWN, batch(NODES, [good, good | {column: None}]))]))
        with pytest.raises(UserError, match=column):
            writer.stage(iter([TableChange(OWN, batch(NODES, [good]).drop_columns([column]))]))

    def test_columns_come_in_any_order_and_in_types_that_fit(self, target: TableTarget, index: str) -> None:
        rows = batch(NODES, [{"id": 1, "path": "1/", "title": "x"}])
        rows = rows.select(rows.schema.names[::-1])
        at = rows.schema.get_field_index("id")
        rows = rows.set_column(at, "id", rows["id"].cast(pa.int32())).append_column("extra", pa.array([1]))
        base = target.fence(index, 1)
        part = target.writer(index, base).stage(iter([TableChange(OWN, rows)]))
        target.commit(index, base=base, epoch=1, attempt="1", staged=[part], marks=[])
        assert nodes(target, index) == {1: "x"}

    def test_parts_of_several_tasks_in_many_batches(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)

        def task(number: int) -> Iterator[TableChange]:
            for at in range(20):
                yield from change([Node(20 * number + at, f"{at}", 1), Edge(20 * number + at, at, 1)])

        parts = [target.writer(index, base).stage(task(number)) for number in range(3)]
        assert nodes(target, index) == {}
        target.commit(index, base=base, epoch=1, attempt="1", staged=parts, marks=[])
        assert nodes(target, index) == {n: f"{n % 20}" for n in range(60)}
        assert edges(target, index) == {n: n % 20 for n in range(60)}

    def test_rows_of_many_partitions_and_instances_keep_theirs(self, target: TableTarget, index: str) -> None:
        """In one file of many batches, each with values of its own."""
        base = target.fence(index, 1)
        expected = {n: (f"Node@{n // 7 % 3}", f"instance {n // 7}" if n % 7 else f"only {n}") for n in range(100)}
        rows = [
            batch(NODES, [{"id": n, "_ref": expected[n][0], "_instance": expected[n][1]} for n in range(at, at + 5)])
            for at in range(0, 100, 5)
        ]
        part = target.writer(index, base).stage(TableChange(OWN, each) for each in rows)
        target.commit(index, base=base, epoch=1, attempt="1", staged=[part], marks=[])
        for upkeep in (False, True):
            if upkeep:
                target.maintain(index, full=True)
            found = target.read(index, columns=["id", "_ref", "_instance"]).to_pylist()
            assert {each["id"]: (each["_ref"], each["_instance"]) for each in found} == expected
        assert target.read(index, where={"_instance": "only 7"}, columns=["id"]).to_pylist() == [{"id": 7}]

    def test_an_error_while_staging_stays_itself_and_changes_nothing(self, target: TableTarget, index: str) -> None:
        def changes() -> Iterator[TableChange]:
            yield from change([Node(1, "one", 1)])
            raise KeyError("transform")

        with pytest.raises(KeyError, match="transform"):
            target.writer(index, target.fence(index, 1)).stage(changes())
        assert nodes(target, index) == {}

    # -- failures ------------------------------------------------------------------------------

    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize(
        ("fails", "at"),
        [(name, 1) for name in ("create", "fence", "stage", "commit", "maintain", "promote")]
        + [("stage", 2), ("commit", 2)],
    )
    def test_repeating_after_a_failure_converges(self, target: TableTarget, fails: str, at: int, after: bool) -> None:
        """Run over and over until it comes through: two waves, of which the second deletes."""
        target.create(self.physical, SPECS)
        put(target, self.physical, Node(1, "old", 1), Node(2, "gone", 1), Edge(1, 9, 1), epoch=1, attempt="before")
        failing = FailingTarget(target, fails, at=at, after=after)  # type: ignore[arg-type]  # any target
        waves: list[Sequence[Row]] = [
            (Node(1, "new", 2), Edge(1, 8, 2)),
            (Node(2, None, 2, deleted=True), Node(3, "three", 2)),
        ]
        for epoch in itertools.count(2):
            try:
                failing.create(self.physical, SPECS)
                base = failing.fence(self.physical, epoch)
                for number, wave in enumerate(waves):
                    part = failing.writer(self.physical, base).stage(change(wave))
                    failing.commit(
                        self.physical, base=base, epoch=epoch, attempt=f"{epoch}-{number}", staged=[part], marks=[]
                    )
                failing.maintain(self.physical, full=True)
                failing.promote("Node", self.physical, epoch)
            except InstepError:
                continue
            break
        assert failing.failed
        assert nodes(target, self.physical) == {1: "new", 3: "three"}
        assert edges(target, self.physical) == {1: 8}
        assert target.served("Node") == self.physical

    # -- upkeep --------------------------------------------------------------------------------

    def test_upkeep_changes_no_content(self, target: TableTarget, index: str) -> None:
        target.maintain(index)
        for number in range(20):
            rows = [Node(n, f"{number}", number) for n in range(number, 40)]
            put(target, index, *rows, Node(number, None, number + 1, deleted=True), epoch=1, attempt=f"{number}")
            if number % 3 == 0:
                target.maintain(index)
        expected = dict.fromkeys(range(20, 40), "19")
        for full in (False, True, True):
            target.maintain(index, full=full)
            assert nodes(target, index) == expected
        put(target, index, *(Node(n, "late", 0) for n in range(40)), epoch=1, attempt="late")
        assert nodes(target, index) == expected

    def test_staged_rows_without_a_commit_are_not_read(self, target: TableTarget, index: str) -> None:
        staged(target, index, target.fence(index, 1), Node(1, "one", 1))
        target.maintain(index, full=True)
        assert nodes(target, index) == ({} if self.apart else {1: "one"})
