"""A base of what a process has written itself, which it does not read back: it is what the ledger has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from instep.document_state.entries import EntryColumns, entry_columns, entry_schema
from instep.domain.counts import Counts
from instep.domain.manifest import ManifestEntry
from instep.domain.waves import SliceOutcome
from instep.ledger import documents, recent_entries
from instep.ledger.base_form import BASE
from instep.ledger.document_pages import rows_of
from instep.ledger.ledger import Ledger
from instep.ledger.tables import manifests

from .places import FolderPlace, Place, place, store_place
from .test_bases import check, entry, name, read_by

__all__ = ["place", "store_place"]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_BASE_ROWS", 1)
    monkeypatch.setattr("instep.ledger.bases._GRACE", -1.0)
    monkeypatch.setattr("instep.ledger.entry_fields._PORTION", 2)


def in_columns(entries: Sequence[ManifestEntry]) -> EntryColumns:
    columns = zip(zip(*entries, strict=True), entry_schema(), strict=True)
    return entry_columns(
        pa.Table.from_arrays([pa.array(each, field.type) for each, field in columns], schema=entry_schema())
    )


def write(ledger: Ledger, *slices: Sequence[ManifestEntry], removed: Sequence[str] = ()) -> None:
    """As a wave writes: entries in columns, of some slices."""
    outcomes = [SliceOutcome("s", 1, Counts(), in_columns(some), list(removed)) for some in slices]
    ledger.database.write(lambda tx: documents._write(tx, "one", outcomes))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A name for each time that entries are read back for a base."""
    found: list[str] = []

    def noted(*args: object, **kwargs: object) -> pa.Table:
        found.append("read")
        return rows_of(*args, **kwargs)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(documents, "rows_of", noted)
    return found


def test_entries_that_were_just_written_are_not_read_back_for_a_base(place: Place, reads: list[str]) -> None:
    ledger = place.open()
    ledger.documents.remember("one")
    write(ledger, [entry(3), entry(1)], [entry(2)])
    write(ledger, [entry(5), entry(2, "v2")])
    ledger.documents.compact("one")
    assert read_by(ledger)
    assert not reads
    check(ledger)
    ledger.documents.remember("one")
    write(ledger, [entry(7), entry(1, "v3")])
    ledger.documents.compact("one")
    assert not reads
    check(ledger)
    versions = ledger.documents.columns("one", BASE).select(["size", "version"]).to_pylist()
    assert {each["size"]: each["version"] for each in versions} == {1: "v3", 2: "v2", 3: "v1", 5: "v1", 7: "v1"}


@pytest.mark.parametrize("gap", ["before", "between", "removed", "forgotten", "too many"])
def test_entries_are_read_back_where_not_all_are_known(
    place: Place, reads: list[str], gap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, other = place.open(), place.open()
    if gap == "too many":
        monkeypatch.setattr(recent_entries, "MOST", 3)
    if gap == "before":
        write(other, [entry(8)])
    ledger.documents.remember("one")
    write(ledger, [entry(1), entry(2)])
    if gap == "between":
        write(other, [entry(1, "v2")])
    if gap == "removed":
        write(ledger, [entry(4)], removed=[name(1)])
    if gap == "forgotten":
        ledger.documents.remember("two")
        ledger.documents.remember("one")
    write(ledger, [entry(3), entry(4)])
    ledger.documents.compact("one")
    assert reads
    assert read_by(ledger)
    check(ledger)


def test_a_worker_that_goes_on_looks_at_each_entry_it_remembers_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at each revision by itself made totals after a thousand jobs take minutes."""
    ledger = FolderPlace(tmp_path).open()
    ledger.documents.remember("one")
    for number in range(30):
        write(ledger, [entry(number % 7, f"v{number}"), entry(number % 3 + 10, f"v{number}")])
    monkeypatch.setattr(recent_entries, "replaced", None)
    found = ledger._recent.between("one", 0, 30)
    assert found is not None
    assert sorted(found.to_pylist(), key=str) == sorted(ledger.documents.columns("one", BASE).to_pylist(), key=str)


def test_no_more_revisions_are_remembered_than_are_quicker_than_a_look(tmp_path: Path) -> None:
    ledger = FolderPlace(tmp_path).open()
    ledger.documents.remember("one")
    for number in range(1, recent_entries.REVISIONS + 2):
        write(ledger, [entry(number)])
    assert ledger._recent.between("one", 0, number) is None
    assert ledger.documents.totals("one")[0] == number
    assert not ledger._recent._revisions, "and none is kept"


def test_totals_count_documents_from_before_there_were_revisions(tmp_path: Path) -> None:
    ledger = FolderPlace(tmp_path).open()
    write(ledger, [entry(1), entry(2), entry(3)])
    ledger.database.write(lambda tx: tx.connection.execute(delete(manifests)))
    ledger.documents.remember("one")
    write(ledger, [entry(4), entry(1, "v2")])
    assert ledger.documents.totals("one") == (4, 4, 10)
    ledger.documents.compact("one")
    check(ledger)


def test_a_write_whose_transaction_fails_is_not_remembered(place: Place) -> None:
    ledger = place.open()
    ledger.documents.remember("one")
    write(ledger, [entry(1)])
    outcome = SliceOutcome("s", 1, Counts(), in_columns([entry(2)]), [])

    def fails(tx: object) -> None:
        documents._write(tx, "one", [outcome])  # type: ignore[arg-type]  # as it came
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ledger.database.write(fails)
    write(ledger, [entry(3)])
    ledger.documents.compact("one")
    assert read_by(ledger)
    check(ledger)


_ENTRY = st.builds(entry, st.integers(0, 9), st.sampled_from(["v1", "v2"]))
_WRITE = st.tuples(st.integers(0, 1), st.lists(_ENTRY, min_size=1, max_size=6), st.lists(st.integers(0, 9), max_size=1))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.one_of(_WRITE, st.sampled_from(["compact", "remember", "drop"])), max_size=12))
def test_whoever_writes_and_compacts_a_base_says_what_the_ledger_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[object]
) -> None:
    folder: Path = tmp_path_factory.mktemp("ledger")
    ledgers = [FolderPlace(folder).open(), FolderPlace(folder).open()]
    for step in steps:
        match step:
            case "compact":
                ledgers[0].documents.compact("one")
            case "remember":
                ledgers[0].documents.remember("one")
            case "drop":
                ledgers[1].database.write(lambda tx: documents.drop(tx, "one"))
            case (int(which), list(entries), list(removed)):
                write(ledgers[which], entries, removed=[name(each) for each in removed])
        check(ledgers[1])
    for each in ledgers:
        each.close()
