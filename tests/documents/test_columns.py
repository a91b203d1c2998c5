"""Columns of documents: values by what sources say, and documents whose columns change, through the whole pipeline."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep.arrow.values import OtherType, column_type, texts_of, typed
from instep.domain.column_values import MAX_BYTES, MAX_ELEMENTS, WrongValue, value_of
from instep.domain.document_columns import DeclaredColumn, DocumentColumn, DocumentColumnType, Origin
from instep.domain.waves import SliceOutcome, Wave, WaveSlice
from instep.pipeline.documents import comparison
from instep.sources.feed_lines import fields_of
from instep.targets.document_target import declared_fields, row_schema
from tests.documents.test_pipeline import Project

_T = DocumentColumnType
_ZONE = timezone(timedelta(hours=2))


def declared(
    name: str, kind: DocumentColumnType, origin: Origin, of: str | None = None, *, lenient: bool = False
) -> DeclaredColumn:
    return DeclaredColumn(DocumentColumn(name, kind), origin, of or name, lenient)


COLUMNS = (
    declared("due", _T.DATE, Origin.FRONT_MATTER),
    declared("ext", _T.STRING, Origin.FILE, "extension"),
    declared("rank", _T.FLOAT, Origin.FRONT_MATTER, "score", lenient=True),
    declared("tags", _T.STRINGS, Origin.FRONT_MATTER),
    declared("team", _T.STRING, Origin.FRONT_MATTER),
    declared("year", _T.INT, Origin.PATH, r"(\d{4})/"),
)
NAMES = [each.name for each in COLUMNS]


class WithColumns(Project):
    """See `Project`; its rows have columns."""

    def __init__(self, folder: Path, columns: Sequence[DeclaredColumn] = COLUMNS) -> None:
        super().__init__(folder, columns=columns)

    def values(self) -> dict[str, dict[str, Any]]:
        """Values of a document by name, which are the same in all of its rows."""
        found: dict[str, dict[str, Any]] = {}
        for row in self.target.stored("p"):
            mine = {each.name: row[each.name] for each in self.program.columns}
            assert found.setdefault(row["source_uri"].rsplit("/", 1)[-1], mine) == mine
        return found

    def vectors(self) -> dict[str, list[float]]:
        return {row["chunk_id"]: row["vector"] for row in self.target.stored("p")}


@pytest.fixture
def project(tmp_path: Path) -> WithColumns:
    return WithColumns(tmp_path)


FRONT = "---\nteam: {team}\ntags: [urgent, 'a, b']\ndue: 2024-02-29\nscore: {score}\n---\n"
BODY = "First paragraph of this text.\n\nSecond paragraph of this text.\n"


def test_values_come_from_front_matter_the_path_and_the_file(project: WithColumns) -> None:
    project.put("2023/a.md", FRONT.format(team="ops", score="1e1") + BODY)
    project.put("b.TXT", BODY)
    assert project.sync().written == 2
    assert project.values() == {
        "a.md": {
            **{"due": date(2024, 2, 29), "ext": "md", "rank": 10.0},
            **{"tags": ["urgent", "a, b"], "team": "ops", "year": 2023},
        },
        "b.TXT": dict.fromkeys(NAMES) | {"ext": "txt"},
    }
    modified = {row["modified"] for row in project.target.stored("p") if row["source_uri"].endswith("b.TXT")}
    seconds = (project.folder / "b.TXT").stat().st_mtime_ns // 1000
    assert modified == {datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=seconds)}


def test_a_change_of_columns_alone_embeds_nothing_and_keeps_the_vectors(project: WithColumns) -> None:
    project.put("2023/a.md", FRONT.format(team="ops", score="1") + BODY)
    project.put("2023/b.md", FRONT.format(team="ops", score="1") + BODY)
    first, before = project.sync(), project.vectors()
    assert first.embedded == first.rows_written == 4
    project.put("2023/a.md", FRONT.format(team="dev", score="1") + BODY)
    second = project.sync()
    assert (second.read, second.written, second.embedded) == (1, 1, 0)
    assert (second.rows_written, second.rows_deleted, second.rows_kept) == (2, 2, 0)
    assert project.vectors() == before
    assert {name: each["team"] for name, each in project.values().items()} == {"a.md": "dev", "b.md": "ops"}
    assert project.changes() == []
    project.put("2023/a.md", FRONT.format(team="net", score="1") + BODY + "\nA third one, which is new.\n")
    third = project.sync()
    assert third.embedded < third.rows_written == len(project.vectors()) - 2
    assert {each["team"] for name, each in project.values().items() if name == "a.md"} == {"net"}


@pytest.mark.parametrize("nothing", ["null", "~", "''", "Null"])
def test_a_list_with_a_null_in_front_matter_is_wrong_as_in_a_feed(project: WithColumns, nothing: str) -> None:
    """As readers it would let in the others, or somebody who is called null."""
    project.put("2023/a.md", f"---\ntags: [{nothing}, alice]\n---\n" + BODY)
    assert project.sync().failed == 1
    with pytest.raises(WrongValue, match="a null in a list of string"):
        value_of(DocumentColumn("tags", _T.STRINGS), [None, "alice"])


@pytest.mark.parametrize("kind", ["tags", "team"])
def test_a_value_without_end_by_aliases_fails_its_document_at_once(project: WithColumns, kind: str) -> None:
    """Ten times itself, fifteen times over: of what is written out a thousand million million."""
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 16))
    project.put("2023/a.md", f"---\na0: &a0 [x, x]\n{levels}{kind}: *a15\n---\n" + BODY)
    project.put("2023/b.md", BODY)
    done = project.sync()
    assert (done.failed, done.written) == (1, 1)


def test_a_wrong_value_fails_its_document_alone_by_column_and_value(project: WithColumns) -> None:
    project.put("2023/a.md", "---\ndue: tomorrow\n---\n" + BODY)
    project.put("2023/b.md", "---\nscore: high\n---\n" + BODY)
    project.put("2023/c.md", "---\ntags: urgent\n---\n" + BODY)
    counts = project.sync()
    assert (counts.read, counts.written, counts.failed) == (3, 1, 2)
    assert {name: (each.stage, each.reason) for name, each in project.failures.items()} == {
        "a.md": ("columns", "column due is date, and the value is 'tomorrow'"),
        "c.md": ("columns", "column tags is string[], and the value is 'urgent'"),
    }
    assert project.values() == {"b.md": dict.fromkeys(NAMES) | {"ext": "md", "year": 2023}}
    project.put("2023/a.md", "---\ndue: 2024-01-01\n---\n" + BODY)
    assert project.sync().written == 1
    assert project.values()["a.md"]["due"] == date(2024, 1, 1)


def test_a_touched_file_changes_a_column_that_says_when_and_no_other(tmp_path: Path) -> None:
    touched = declared("at", _T.TIMESTAMP, Origin.FILE, "modified")
    for columns, expected in (((touched,), 1), (COLUMNS, 0)):
        project = WithColumns(tmp_path, columns)
        project.put("a.md", BODY)
        project.sync()
        os.utime(tmp_path / "a.md", ns=(1_000_000_001_000, 1_000_000_001_000))
        counts = project.sync()
        assert (counts.read, counts.written, counts.skipped, counts.embedded) == (1, expected, 1 - expected, 0)
        if expected:
            assert project.values() == {"a.md": {"at": datetime(1970, 1, 1, 0, 16, 40, 1, UTC)}}


def test_a_transform_adds_columns_to_chunks(tmp_path: Path) -> None:
    columns = (declared("length", _T.INT, Origin.TRANSFORM), declared("kind", _T.STRING, Origin.TRANSFORM))
    project = WithColumns(tmp_path, columns)
    project.put("a.md", BODY)
    program = project.program.__class__(**{**vars(project.program), "transformed": True})
    (batch,) = program.read(iter([_changes(project)]))
    lengths = pa.array([None if each is None else len(each) for each in batch["text"].to_pylist()], pa.int32())
    kinds = pa.array(["x\0" if index == 1 else "x" for index in batch["chunk_index"].to_pylist()])
    good = batch.append_column("length", lengths).append_column("kind", pa.array(["x"] * batch.num_rows))
    (outcome,) = program.write(iter([good]))
    assert _slice(outcome).counts.embedded == 2
    bad = batch.append_column("length", lengths).append_column("kind", kinds)
    (outcome,) = program.write(iter([bad]))
    (failure,) = _slice(outcome).failures
    assert (failure.stage, failure.reason) == ("transform", "column kind: the character U+0000 in it")


def _changes(project: WithColumns) -> pa.RecordBatch:
    from instep.pipeline.documents.rows import change_batch

    changes = project.changes()
    return change_batch(WaveSlice("s0", 1, 0, len(changes), changes))


def _slice(outcome: pa.RecordBatch) -> SliceOutcome:
    from instep.domain.refs import PartitionRef
    from instep.pipeline.outcomes import task_outcomes

    wave = Wave("w", PartitionRef("Document"), "i", "p", 1, 0, (WaveSlice("s0", 1, 0, 1),))
    (task,) = task_outcomes(pa.Table.from_batches([outcome]), wave)
    return task.slices[0]


def test_a_deep_comparison_finds_other_columns_behind_the_right_hash(project: WithColumns) -> None:
    project.put("2023/a.md", FRONT.format(team="ops", score="1") + BODY)
    changes = project.changes()
    project.sync()
    taken: list[pa.RecordBatch] = []
    comparison.given(project.program, changes, taken.append, vectors=True)
    (rows,) = taken
    columns = [each.column for each in COLUMNS]
    (document,) = set(map(str, rows["document_id"].to_pylist()))
    assert comparison.unlike(rows, project.target.written("p", [document], columns)) == {}
    for row in project.target._index("p").rows.values():
        row["tags"] = None
    (found,) = comparison.unlike(rows, project.target.written("p", [document], columns)).values()
    assert found == (2, 0, 0, 0, 2)


def test_an_index_from_before_there_were_columns_has_none() -> None:
    rows = row_schema(4, [each.column for each in COLUMNS])
    assert [each.name for each in declared_fields(rows)] == NAMES
    assert declared_fields(row_schema(4)) == []
    assert declared_fields(rows.remove(rows.get_field_index("modified"))) == []


def test_fields_of_a_line_are_as_json_has_them() -> None:
    line = b'{"id": 1, "text": "x", "n": 9007199254740993, "tags": ["a", null], "none": null, "deep": {"a": 1}}'
    assert fields_of(line, ["n", "tags", "none", "missing", "deep"]) == {
        **{"n": 9_007_199_254_740_993, "tags": ["a", None], "none": None, "deep": {"a": 1}}
    }


def test_a_number_that_nothing_holds_comes_as_its_text() -> None:
    line = b'{"id": 1, "text": "x", "f": 1e999, "acl": [-1e400], "team": "ops"}'
    assert fields_of(line, ["f", "acl", "team"]) == {"f": "1e999", "acl": "[-1e400]", "team": "ops"}


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (_T.STRING, "", ""),
        (_T.INT, -(2**63), -(2**63)),
        (_T.FLOAT, 3, 3.0),
        (_T.FLOAT, math.nan, None),
        (_T.FLOAT, -0.0, 0.0),
        (_T.BOOL, False, False),
        (_T.TIMESTAMP, "2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)),
        (_T.TIMESTAMP, "2024-05-01T08:30", datetime(2024, 5, 1, 8, 30, tzinfo=UTC)),
        (_T.TIMESTAMP, "2024-05-01 08:30:00.1234567 +02:00", datetime(2024, 5, 1, 6, 30, 0, 123_456, UTC)),
        (_T.TIMESTAMP, datetime(2024, 5, 1, 8, tzinfo=_ZONE), datetime(2024, 5, 1, 6, tzinfo=UTC)),
        (_T.TIMESTAMP, datetime(2024, 5, 1, 8), datetime(2024, 5, 1, 8, tzinfo=UTC)),
        (_T.DATE, "2024-02-29", date(2024, 2, 29)),
        (_T.STRINGS, ["b", "a", "b"], ["b", "a", "b"]),
        (_T.STRINGS, [], None),
        (_T.INTS, [2**63 - 1], [2**63 - 1]),
    ],
)
def test_values_are_taken_as_they_are_typed(kind: DocumentColumnType, said: Any, value: Any) -> None:
    found = value_of(DocumentColumn("c", kind), said)
    assert (found, type(found)) == (value, type(value))
    assert value != 0.0 or math.copysign(1, found) == 1


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (_T.STRING, 7),
        (_T.STRING, "a\0"),
        (_T.STRING, "\ud800"),
        (_T.STRING, "é" * (MAX_BYTES // 2 + 1)),
        (_T.STRING, "x" * 100_000),
        (_T.INT, "7"),
        (_T.INT, True),
        (_T.INT, 7.0),
        (_T.INT, 2**63),
        (_T.FLOAT, math.inf),
        (_T.FLOAT, 10**400),
        (_T.BOOL, "true"),
        (_T.BOOL, 1),
        (_T.TIMESTAMP, "yesterday"),
        (_T.TIMESTAMP, "0001-01-01T00:00:00+01:00"),
        (_T.TIMESTAMP, 1_700_000_000),
        (_T.DATE, "2024-02-30"),
        (_T.DATE, "2024-02-29T10:00"),
        (_T.STRINGS, "a"),
        (_T.STRINGS, ["a", None]),
        (_T.STRINGS, ["a"] * (MAX_ELEMENTS + 1)),
        (_T.INTS, [1, "2"]),
    ],
)
def test_other_values_are_named_with_their_column(kind: DocumentColumnType, said: Any) -> None:
    with pytest.raises(WrongValue, match="column c") as raised:
        value_of(DocumentColumn("c", kind), said)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (_T.INT, "2024", 2024),
        (_T.FLOAT, "1e3", 1000.0),
        (_T.FLOAT, ".nan", None),
        (_T.BOOL, "True", True),
        (_T.STRING, "007", "007"),
        (_T.STRING, "~", None),
        (_T.INT, "", None),
        (_T.INTS, ["1", "2"], [1, 2]),
    ],
)
def test_text_stands_for_what_its_column_has(kind: DocumentColumnType, said: Any, value: Any) -> None:
    assert value_of(DocumentColumn("c", kind), said, text=True) == value


@pytest.mark.parametrize(
    ("kind", "column", "values", "wrong"),
    [
        (_T.STRING, pa.array(["a", None, "a\0", "x" * 2_001]).dictionary_encode(), ["a", None, None, None], [2, 3]),
        (_T.INT, pa.array([1, 2**64 - 1, None], pa.uint64()), [1, None, None], [1]),
        (_T.INT, pa.array([1, None], pa.int8()), [1, None], []),
        (_T.FLOAT, pa.array([1.5, math.nan, math.inf, -0.0], pa.float32()), [1.5, None, None, 0.0], [2]),
        (_T.TIMESTAMP, pa.array([0, 10**15], pa.timestamp("s")), [datetime(1970, 1, 1, tzinfo=UTC), None], [1]),
        (
            _T.TIMESTAMP,
            pa.array([1_999], pa.timestamp("ns", "Asia/Tokyo")),
            [datetime(1970, 1, 1, 0, 0, 0, 1, UTC)],
            [],
        ),
        (_T.DATE, pa.array([0, 10**7], pa.date32()), [date(1970, 1, 1), None], [1]),
        (_T.STRINGS, pa.array([["a"], [], None, ["a", None], ["b"]]), [["a"], None, None, None, ["b"]], [3]),
        (_T.STRINGS, pa.array(['["a"]', "[]", None, "{}", "x"]), [["a"], None, None, None, None], [3, 4]),
        (_T.INTS, pa.array([[1], [2**63]], pa.list_(pa.uint64())), [[1], None], [1]),
        (_T.INTS, pa.nulls(2), [None, None], []),
    ],
)
def test_columns_of_tables_are_typed_whole(
    kind: DocumentColumnType, column: Any, values: list[Any], wrong: list[int]
) -> None:
    found = typed(DocumentColumn("c", kind), column)
    assert found.values.type == column_type(kind)
    assert found.values.to_pylist() == values
    assert sorted(found.wrong) == wrong
    assert all(each.startswith("column c") for each in found.wrong.values())


def test_a_column_of_another_type_is_no_column_of_wrong_values() -> None:
    with pytest.raises(OtherType, match="column c is declared as int, and holds string"):
        typed(DocumentColumn("c", _T.INT), pa.array(["1"]))


_ROW = st.tuples(
    st.none() | st.text(st.sampled_from("a\\\x1d\x1e\x1fb"), max_size=3),
    st.none() | st.lists(st.text(st.sampled_from("a\\\x1d\x1e\x1fe"), max_size=2), min_size=1, max_size=3),
    st.none() | st.integers(-3, 3),
)


@example([("\\b", None, None), ("\x1d", None, None)])
@example([(None, ["\\e"], None), (None, ["\x1e"], None)])
@given(st.lists(_ROW, min_size=2, max_size=8))
def test_rows_have_one_text_exactly_if_they_have_the_same_values(rows: list[tuple[Any, ...]]) -> None:
    columns = {
        "s": pa.array([row[0] for row in rows], pa.string()),
        "l": pa.array([row[1] for row in rows], pa.list_(pa.string())),
        "n": pa.array([row[2] for row in rows], pa.int64()),
    }
    texts = texts_of(columns).to_pylist()
    for one, said in zip(rows, texts, strict=True):
        assert (said == "") == (one == (None, None, None))
        for other, theirs in zip(rows, texts, strict=True):
            assert (said == theirs) == (one == other)
    more = texts_of({**columns, "new": pa.nulls(len(rows), pa.string())}).to_pylist()
    assert more == texts, "a column without values changes nothing"


@pytest.mark.parametrize(("mark", "escaped"), [("\x1e", "\\e"), ("\x1d", "\\b"), ("\x1f", "\\a")])
def test_a_text_that_looks_like_an_escape_has_a_text_of_its_own(mark: str, escaped: str) -> None:
    one, other = texts_of({"s": pa.array([f"a{mark}b", f"a{escaped}b"])}).to_pylist()
    assert one != other
