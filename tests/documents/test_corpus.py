"""A corpus planned part by part, as tasks do it: the same plan as that of all of it at once."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.document_state.columns import ChangeColumns
from instep.document_state.corpus_parts import bounds, part_numbers, parts_for
from instep.document_state.cuts import cut_columns
from instep.document_state.difference import ENTRY, RECORDED, Record, difference
from instep.document_state.losses import failing, tally
from instep.document_state.pieces import PIECE, PieceFiles, Recorded, StateLost, piece_schema, write_pieces
from instep.domain.identity import bucket_of, canonical_uri, document_id
from instep.domain.manifest import Action
from instep.domain.planning import SliceSizing
from instep.domain.promotion_rules import Tally
from instep.domain.rows import DocumentColumns
from instep.error_transport import explained
from instep.errors import Away
from instep.pipeline.documents.corpus import FOUND, LISTED, SUMS, TALLIED, Comparison, counts_of
from instep.pipeline.documents.stored_changes import CUT, Cutting, PartFile
from instep.pipeline.engine.corpus import SparkCorpus
from instep.sources.tables.row_documents import RowDocuments, named_schema

SIZING = SliceSizing(row_bytes=1, asked=4)

keys = st.integers(0, 40)
versions = st.sampled_from(["1", "2", "3"])
listings = st.lists(st.tuples(st.one_of(st.none(), keys), versions, st.integers(-3, 5)), max_size=40)
records = st.dictionaries(keys, st.tuples(versions, st.integers(0, 5), st.integers(0, 3)), max_size=40)
failures = st.dictionaries(keys, versions, max_size=8)


@dataclass(frozen=True)
class Some:
    """Rows for a task."""

    rows: Sequence[tuple[int | None, str, int]]

    def listed(self) -> Iterator[pa.RecordBatch]:
        columns = list(zip(*self.rows, strict=True)) or [(), (), ()]
        kinds = (pa.int64(), pa.string(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, ["c0", "c1", "c2"])


def source() -> RowDocuments:
    unread: Any = None
    return RowDocuments("Ticket", DocumentColumns(("id",), "text", None, "version", None), unread, unread)


def uri(key: int) -> str:
    return f"table://Ticket/{key}"


def entries(recorded: Mapping[int, tuple[str, int, int]]) -> pa.Table:
    """As the ledger has them, in the order of their ids."""
    rows = [
        (document_id(canonical_uri(uri(key))), uri(key), size, version, chunks, f"hash {version}")
        for key, (version, size, chunks) in recorded.items()
    ]
    made = pa.Table.from_pylist([dict(zip(PIECE, row, strict=True)) for row in rows], piece_schema())
    return made.sort_by("document_id")


def all_at_once(
    listed: Sequence[tuple[int | None, str, int]], known: pa.Table, failed: Mapping[str, str], retry: bool
) -> Any:
    rows = pa.Table.from_batches([source().named(each) for each in Some(listed).listed()], named_schema())
    record = Record(
        known.select(RECORDED), lambda uris: known.filter(pc.is_in(known["uri"], value_set=uris)).select(ENTRY)
    )
    listed_all = source().documents(rows.sort_by("uri"))
    return difference(listed_all, record, failed, complete=True, buckets=3, retry_failures=retry)


def all_tallied(listed: Sequence[tuple[int | None, str, int]], known: pa.Table, failed: Mapping[str, str]) -> Tally:
    rows = pa.Table.from_batches([source().named(each) for each in Some(listed).listed()], named_schema())
    listing = source().documents(rows.sort_by("uri")).table
    return tally(known, listing, failing(listing, failed))


def by_parts(
    comparison: Comparison, listed: Sequence[tuple[int | None, str, int]], *, tallied: bool = False
) -> pa.Table:
    """What tasks find: some list, and each part goes to one that compares it, also one that nothing is listed of."""
    portions = [Some(listed[start : start + 7]) for start in range(0, len(listed), 7)]
    found = [batch for each in portions for batch in pickle.loads(pickle.dumps(comparison)).listed(each.listed())]
    empty = {"part": pa.array(range(comparison.parts), pa.int32())}
    every = pa.table(
        {name: empty.get(name, pa.nulls(comparison.parts, LISTED.field(name).type)) for name in LISTED.names}
    )
    rows = pa.concat_tables([pa.Table.from_batches(found, LISTED), every])
    parts = [rows.filter(pc.equal(rows["part"], pa.scalar(part, pa.int32()))) for part in range(comparison.parts)]
    # A task may be given two parts.
    shares = [pa.concat_tables(parts[at : at + 2]) for at in range(0, len(parts), 2)]
    of_parts = comparison.tallied if tallied else comparison.compared
    answers = [batch for share in shares for batch in of_parts(share.to_batches())]
    return pa.Table.from_batches(answers, TALLIED if tallied else FOUND)


@given(listings, records, failures, st.booleans(), st.integers(1, 15), st.sampled_from([1, 2, 8]))
def test_parts_make_the_plan_of_the_whole(
    listed: list[tuple[int | None, str, int]],
    recorded: dict[int, tuple[str, int, int]],
    failed: dict[int, str],
    retry: bool,
    piece: int,
    parts: int,
) -> None:
    known, by_uri = entries(recorded), {uri(key): version for key, version in failed.items()}
    whole = all_at_once(listed, known, by_uri, retry)
    by_part: dict[int, dict[str, str]] = {}
    for each, version in by_uri.items():
        (part,) = part_numbers(pa.chunked_array([[each]]), parts).tolist()
        by_part.setdefault(part, {})[each] = version
    with TemporaryDirectory() as name:
        folder = Path(name)
        # One half was written later, and some of it before as well, as it was then.
        later = known.filter(pa.array([at % 2 == 0 for at in range(known.num_rows)], pa.bool_()))
        old = known.set_column(3, "version", pa.array(["0"] * known.num_rows, pa.string()))
        base = pa.concat_tables([old.filter(pc.is_in(old["uri"], value_set=later["uri"])).slice(0, 3), known])
        base = base.filter(pa.array(_first_of(base["uri"].to_pylist()), pa.bool_())).sort_by("document_id")
        state = Recorded(
            write_pieces(folder, base.to_batches(max_chunksize=piece) if base.num_rows else []),
            write_pieces(folder, later.combine_chunks().to_batches()),
            PieceFiles(folder, ()),
        )
        comparison = Comparison(source(), state, by_part, parts, 3, retry, folder)
        found = by_parts(comparison, listed)
        assert found.num_rows == parts
        counted = by_parts(comparison, listed, tallied=True)
        assert Tally(*(pc.sum(column).as_py() for column in counted.columns)) == all_tallied(listed, known, by_uri)
        assert {each: counts_of(found)[each] for each in SUMS} == {each: getattr(whole, each) for each in SUMS}
        actions = whole.changes.counts("action")
        assert [counts_of(found)[each] for each in Action] == [actions[each] for each in Action]

        files = [
            PartFile(row["file"], [int(each) for each in row["buckets"].split()])
            for row in found.sort_by("part").to_pylist()
            if row["file"]
        ]
        changes = [change for each in files for change in ChangeColumns(each.read(folder))]
        assert sorted(changes) == sorted(whole.changes)
        assert all(each.bucket == bucket_of(each.document_id, 3) for each in changes)

        cut = [Cutting(files, SIZING, SIZING.rows_per_slice, folder).cut(bucket) for bucket in _buckets(files)]
        slices = pa.Table.from_batches(cut, CUT).sort_by([("bucket", "ascending"), ("first", "ascending")])
        expected = cut_columns(whole.changes, SIZING)
        assert slices.select(["bucket", "units", "work"]).to_pylist() == [
            {"bucket": each.bucket, "units": each.units, "work": each.work} for each in expected
        ]
        assert slices["first"].to_pylist() == [each.changes[0].document_id for each in expected]


def _first_of(values: Sequence[str | None]) -> list[bool]:
    return [value not in values[:at] for at, value in enumerate(values)]


def _buckets(files: Sequence[PartFile]) -> list[int]:
    return sorted({bucket for each in files for bucket in each.buckets})


@given(st.lists(keys, unique=True), st.sampled_from([1, 2, 16]))
def test_a_part_is_a_range_of_ids(found: list[int], parts: int) -> None:
    numbers = part_numbers(pa.chunked_array([[uri(each) for each in found]], pa.string()), parts).tolist()
    for key, part in zip(found, numbers, strict=True):
        lower, upper = bounds(part, parts)
        assert lower <= document_id(canonical_uri(uri(key)))
        assert not upper or document_id(canonical_uri(uri(key))) < upper


@pytest.mark.parametrize(("documents", "parts"), [(0, 1), (50_000, 1), (50_001, 2), (1_000_000, 32), (10**12, 4_096)])
def test_there_are_as_many_parts_as_documents_need(documents: int, parts: int) -> None:
    assert parts_for(documents) == parts


def test_a_piece_that_is_damaged_or_lost_is_never_an_empty_one(tmp_path: Path) -> None:
    known = entries(dict.fromkeys(range(10), ("1", 1, 1)))
    nothing = PieceFiles(tmp_path, ())
    state = Recorded(write_pieces(tmp_path, known.to_batches(max_chunksize=4)), nothing, nothing)
    assert state.between("", "").num_rows == 10
    assert not state.damaged()
    file = state.base.pieces[1].file(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    with pytest.raises(StateLost, match="not those that were written"):
        state.between("", "")
    assert state.damaged()
    file.unlink()
    with pytest.raises(StateLost, match="No such file"):
        state.between("", "")
    assert state.base.missing() == [state.base.pieces[1]]
    file.write_bytes(whole)
    assert state.between("", "").num_rows == 10


def test_a_disk_that_is_full_is_reported_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    known = entries({1: ("1", 1, 1)})
    cutting = Cutting([], SIZING, SIZING.rows_per_slice, tmp_path)
    for write in (partial(write_pieces, tmp_path, known.to_batches()), partial(cutting.cut, 0)):
        with pytest.raises(OSError, match=str(tmp_path)) as found:
            write()
        assert str(tmp_path) in str(explained(found.value))
        assert not list(tmp_path.iterdir())


def test_a_spark_that_does_not_start_is_not_taken_for_executors_that_see_nothing(tmp_path: Path) -> None:
    """Else a table that is too large for this process would be planned in it."""

    def start() -> Any:
        raise Away("Spark did not start within 45 seconds")

    with pytest.raises(Away, match="did not start"):
        SparkCorpus(start, tmp_path, 5_000_000).unseen({})
