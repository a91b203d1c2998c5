"""Base files: whatever becomes of them, the ledger says what its table says."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.document_state import pieces
from instep.document_state.entries import EntryColumns, entry_schema
from instep.domain.counts import Counts
from instep.domain.identity import document_id
from instep.domain.manifest import ManifestEntry
from instep.domain.waves import SliceOutcome
from instep.errors import Transient
from instep.ledger import base_form, documents, removals
from instep.ledger.base_form import BASE
from instep.ledger.bases import BaseFiles
from instep.ledger.ledger import Ledger
from instep.ledger.manifest_revisions import Manifest, manifest_of
from instep.ledger.state_files import Staged
from tests.servers.s3 import S3Server

from .places import FolderPlace, Place, StorePlace, place, store_place

__all__ = ["place", "store_place"]

MANY = 4
OLD = Path(__file__).parent / "first_form" / "c6aecd36eb14f79ecf934969da6cb24a.arrow"


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base is written for four documents, and written anew when one in ten was written since."""
    monkeypatch.setattr(documents, "_BASE_ROWS", MANY)
    monkeypatch.setattr("instep.ledger.bases._GRACE", -1.0)


def name(number: int) -> str:
    return f"doc_{number:064d}"


def entry(number: int, version: str = "v1") -> ManifestEntry:
    return ManifestEntry(name(number), f"file:///docs/{9 - number}", number, version, "hash", 1, 0)


def in_columns(some: list[ManifestEntry]) -> EntryColumns:
    columns = zip(*some, strict=True)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, entry_schema(), strict=True)]
    return EntryColumns(pa.Table.from_arrays(arrays, schema=entry_schema()))


def write(ledger: Ledger, *entries: ManifestEntry, removed: tuple[str, ...] = (), instance: str = "one") -> None:
    write_all(ledger, list(entries), removed, instance)


def write_all(
    ledger: Ledger, entries: Sequence[ManifestEntry], removed: tuple[str, ...] = (), instance: str = "one"
) -> None:
    outcome = SliceOutcome("s", 1, Counts(), entries, list(removed))
    ledger.database.write(lambda tx: documents._write(tx, instance, [outcome]))


def check(ledger: Ledger, instance: str = "one") -> None:
    entries = ledger.documents.entries(instance).values()
    expected = sorted(tuple(getattr(each, name) for name in BASE) for each in entries)
    found = ledger.documents.columns(instance, BASE).to_pylist()
    assert sorted(tuple(each.values()) for each in found) == expected


def read_by(ledger: Ledger, instance: str = "one") -> bool:
    """Whether what is recorded is read from a file."""
    manifest = ledger.database.read(lambda tx: manifest_of(tx, instance))
    return ledger.documents._base(manifest) is not None


def removals_of(ledger: Ledger, instance: str = "one") -> list[str]:
    """The ids of documents that are in the base and were removed since."""
    found = ledger.database.read(lambda tx: removals.ids_of(tx, instance))
    return [str(each) for each in found["document_id"].to_pylist()]


def test_a_base_is_read_with_what_was_written_since(place: Place) -> None:
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(MANY)))
    ledger.documents.compact("one")
    assert len(place.names()) == 1
    assert read_by(ledger)
    uris = ledger.documents.columns("one", ["uri"])["uri"].to_pylist()
    assert uris == sorted(map(str, uris)), "in the order of a listing"
    write(ledger, entry(1, "v2"), entry(7))
    assert read_by(ledger)
    check(ledger)
    write(ledger, entry(2)._replace(uri="file:///docs/renamed"))
    check(ledger)


def test_few_documents_have_no_base(place: Place) -> None:
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(MANY - 1)))
    ledger.documents.compact("one")
    ledger.documents.compact("unknown")
    assert place.names() == []
    check(ledger)


def test_a_base_is_written_anew_when_much_was_written_since(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_BASE_SHARE", 0.5)
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(6)))
    ledger.documents.compact("one")
    before = place.names()
    write(ledger, entry(1, "v2"), entry(2, "v2"))
    ledger.documents.compact("one")
    assert place.names() == before
    write(ledger, entry(3, "v2"))
    ledger.documents.compact("one")
    assert len(place.names()) == 1
    assert place.names() != before
    check(ledger)


@pytest.mark.parametrize("removed", [(name(0),), (name(0), name(1), name(9999))])
def test_a_base_stays_when_a_document_was_removed_and_is_read_without_it(
    place: Place, removed: tuple[str, ...]
) -> None:
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(60)))
    ledger.documents.compact("one")
    before = place.names()
    write(ledger, removed=(name(9999),))
    assert removals_of(ledger) == [], "nothing was removed"
    write(ledger, removed=removed)
    write(ledger, entry(7, "v2"))
    assert removals_of(ledger) == sorted(removed)
    ledger.documents.compact("one")
    assert place.names() == before, "few were removed"
    assert read_by(ledger)
    check(ledger)
    write(ledger, entry(0, "v3"))
    check(ledger)
    write(ledger, removed=(name(0),))
    check(ledger)
    ledger.database.write(lambda tx: documents.drop(tx, "one"))
    assert not read_by(ledger)
    assert removals_of(ledger) == []
    check(ledger)


def test_a_base_is_written_anew_when_many_documents_were_removed(place: Place) -> None:
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(20)))
    ledger.documents.compact("one")
    before = place.names()
    write(ledger, removed=(name(3), name(4)))
    ledger.documents.compact("one")
    assert place.names() != before
    assert removals_of(ledger) == [], "the new base has none of them"
    check(ledger)


def test_a_removal_while_a_base_is_written_is_not_forgotten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(20)))
    ledger.documents.compact("one")
    write(ledger, *(entry(number, "v2") for number in range(10)))
    real = documents.Documents._name

    def name_later(self: documents.Documents, manifest: Manifest, file: str) -> None:
        write(ledger, removed=(name(15),))
        real(self, manifest, file)

    monkeypatch.setattr(documents.Documents, "_name", name_later)
    ledger.documents.compact("one")
    assert removals_of(ledger) == [name(15)]
    check(ledger)


def test_a_base_without_documents_counts_none(place: Place) -> None:
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(MANY)))
    ledger.documents.compact("one")
    write(ledger, removed=tuple(map(name, range(MANY))))
    for in_pieces in (False, True):
        ledger.documents.compact("one", in_pieces=in_pieces)
        assert ledger.documents.totals("one") == (0, 0, 0)
        check(ledger)


def test_documents_of_an_older_ledger_get_a_base(place: Place) -> None:
    """Their rows are of revision 0, and no manifest is known."""
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(6)))
    with ledger.database._writer.begin() as connection:
        connection.exec_driver_sql("DELETE FROM manifests")
        connection.exec_driver_sql("UPDATE documents SET revision = 0")
    check(ledger)
    ledger.documents.compact("one")
    assert read_by(ledger)
    write(ledger, entry(1, "v2"))
    assert read_by(ledger)
    check(ledger)


def test_a_base_of_the_first_form_is_read_and_written_anew(tmp_path: Path) -> None:
    """It was written by Instep of 24 November 2026, with ids as text."""
    place = FolderPlace(tmp_path)
    ledger = place.open()
    uris = [f"file:///docs/{number}" for number in range(6)]
    write(ledger, *(ManifestEntry(document_id(uri), uri, at, "v1", "hash", 1, 0) for at, uri in enumerate(uris)))
    place.beside.mkdir()
    shutil.copy(OLD, place.beside)
    ledger.documents._name(ledger.database.read(lambda tx: manifest_of(tx, "one")), OLD.stem)
    with ledger.database._writer.begin() as connection:
        connection.exec_driver_sql("UPDATE documents SET version = 'not looked at' WHERE size > 0")
    found = ledger.documents.columns("one", ["document_id", "uri", "version"]).to_pylist()
    assert found == [{"document_id": document_id(uri), "uri": uri, "version": "v1"} for uri in uris]
    write(ledger, ManifestEntry(document_id(uris[3]), uris[3], 7, "v2", "hash", 1, 0))
    versions = ledger.documents.columns("one", ["uri", "version"]).to_pylist()
    assert {each["uri"]: each["version"] for each in versions} == dict.fromkeys(uris, "v1") | {uris[3]: "v2"}
    before = (place.beside / OLD.name).stat().st_size
    ledger.documents.compact("one")
    (new,) = place.names()
    assert (place.beside / new).stat().st_size < before + 100, "a file says its form, and little else in six rows"
    assert new != OLD.name
    assert {each["version"] for each in ledger.documents.columns("one", BASE).to_pylist()} == {"v1", "v2"}


def test_a_base_of_a_form_to_come_is_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(6)))
    with monkeypatch.context() as later:
        later.setattr(base_form, "_FORM", 3)
        ledger.documents.compact("one")
        assert read_by(ledger)
    assert not read_by(ledger)
    check(ledger)
    ledger.documents.compact("one")
    assert read_by(ledger)


def test_an_id_that_is_no_hash_keeps_documents_out_of_a_base(place: Place) -> None:
    ledger = place.open()
    odd = entry(7)._replace(document_id=name(7).replace("0", "A"))
    write(ledger, *(entry(number) for number in range(6)))
    ledger.documents.compact("one")
    write(ledger, odd)
    check(ledger)
    ledger.documents.compact("one")
    check(ledger)
    write(ledger, *(entry(number, "v2") for number in range(6)), instance="two")
    write(ledger, odd, instance="two")
    ledger.documents.compact("two")
    assert not read_by(ledger, "two")
    check(ledger, "two")


@pytest.mark.parametrize("harm", ["lost", "torn", "empty", "folder", "value", "zeros"])
def test_a_base_that_cannot_be_read_is_reported_and_counts_as_none(
    place: Place, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(6)))
    ledger.documents.compact("one")
    (one,) = place.names()
    data = place.data(one)
    if harm == "folder":
        place.lose_all()
    else:
        place.lose(one)
    if harm in ("torn", "empty"):
        place.put(one, data[: len(data) // 2] if harm == "torn" else b"")
    if harm in ("value", "zeros"):
        # Arrow reads both, and takes them for values.
        at = data.index(bytes.fromhex(name(3)[4:]))
        put = bytes.fromhex(name(9)[4:]) if harm == "value" else bytes(32)
        place.put(one, data[:at] + put + data[at + 32 :])
    caplog.clear()
    ledger.close()
    ledger = place.open()
    check(ledger)
    assert ("is lost" if harm in ("lost", "folder") else "is damaged") in caplog.text
    assert one.partition(".")[0] in caplog.text
    ledger.documents.compact("one")
    assert read_by(ledger)
    check(ledger)


def test_a_base_that_was_overtaken_is_not_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, other = place.open(), place.open()
    write(ledger, *(entry(number) for number in range(6)))
    before = BaseFiles.write

    def overtaken(self: BaseFiles, table: object) -> str:
        write(other, entry(1, "v2"), removed=(name(2),))
        return before(self, table)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(BaseFiles, "write", overtaken)
    ledger.documents.compact("one")
    assert not read_by(ledger)
    check(ledger)


@pytest.mark.parametrize("step", ["put", "rm"])
@pytest.mark.parametrize("anew", [False, True])
def test_an_outage_in_a_compaction_loses_nothing(store_place: StorePlace, s3: S3Server, step: str, anew: bool) -> None:
    """The store goes away before the file is written, and before the old one is removed."""
    place = store_place
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(6)))
    if anew:
        ledger.documents.compact("one")
        write(ledger, *(entry(number, "v2") for number in range(3)))
        check(ledger)  # From now on the old file is known here.
    inner = documents.Documents._name

    def away(*args: object) -> None:
        inner(*args)  # type: ignore[arg-type]  # as they came
        s3.kill()

    try:
        with pytest.MonkeyPatch.context() as patched:
            if step == "rm":
                patched.setattr(documents.Documents, "_name", away)
                ledger.documents.compact("one")
            else:
                s3.kill()
                with pytest.raises(Transient, match=f"the state files at {place.url}"):
                    ledger.documents.compact("one")
    finally:
        s3.revive()
    again = place.open()
    check(again)
    again.documents.compact("one")
    assert read_by(again)
    check(again)


def test_a_base_that_was_just_written_is_left_to_its_writer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.ledger.bases._GRACE", 3_600.0)
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(6)))
    ledger.documents.compact("one")
    (before,) = place.names()
    write(ledger, *(entry(number, "v2") for number in range(6)))
    ledger.documents.compact("one")
    assert len(place.names()) == 2
    assert before in place.names()
    check(ledger)


def test_a_ledger_from_a_backup_and_its_state_may_be_of_different_times(store_place: StorePlace) -> None:
    place = store_place
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(6)))
    ledger.documents.compact("one")
    tables, files = place.tables(), {each: place.data(each) for each in place.names()}
    write(ledger, *(entry(number, "v2") for number in range(3)), removed=(name(4),))
    ledger.documents.compact("one")
    assert not set(files) & set(place.names()), "the older file is not there any more"
    later, newer = place.tables(), {each: place.data(each) for each in place.names()}
    for backup, there in ((tables, newer), (later, files), (tables, files)):
        place.restore(backup)
        place.lose_all()
        for each, data in there.items():
            place.put(each, data)
        again = place.open()
        check(again)
        write(again, entry(1, "v3"))
        check(again)
        again.documents.compact("one")
        assert read_by(again)
        check(again)


class _Killed(BaseException):
    """In place of `kill -9`: nothing of what it interrupts goes on."""


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("step", ["os.fsync", "rename", "_name", "_named", "unlink"])
def test_a_compaction_may_be_killed_between_every_two_steps(tmp_path: Path, step: str, anew: bool) -> None:
    place = FolderPlace(tmp_path)
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(6)))
    if anew:
        ledger.documents.compact("one")
        write(ledger, *(entry(number, "v2") for number in range(3)))

    def killed(*_: object, **__: object) -> None:
        raise _Killed

    with pytest.MonkeyPatch.context() as patched:
        if step == "os.fsync":
            patched.setattr("os.fsync", killed)
        elif step in ("rename", "unlink"):
            patched.setattr(Path, step, killed)
        else:
            patched.setattr(documents.Documents, step, killed)
        if step == "unlink" and not anew:
            ledger.documents.compact("one")  # There is nothing to remove.
        else:
            with pytest.raises(_Killed):
                ledger.documents.compact("one")
    ledger.close()
    again = place.open()
    check(again)
    write(again, entry(1, "v3"))
    check(again)
    again.documents.compact("one")
    check(again)
    assert read_by(again)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 7), st.sampled_from(["v1", "v2", "v3"])),
        st.tuples(st.just("remove"), st.integers(0, 7), st.just("")),
        st.tuples(st.sampled_from(["compact", "drop", "back up", "restore", "lose files"]), st.just(0), st.just("")),
    ),
    min_size=5,
    max_size=25,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(STEPS)
def test_whatever_is_done_columns_are_what_the_table_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str]]
) -> None:
    """A ledger that was restored is older than its bases, and may come to the same revision on another way."""
    place = FolderPlace(tmp_path_factory.mktemp("bases"))
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(MANY)))
    for step, number, version in steps:
        if step == "write":
            write(ledger, entry(number, version))
        elif step == "remove":
            write(ledger, removed=(entry(number).document_id,))
        elif step == "compact":
            ledger.documents.compact("one")
        elif step == "drop":
            ledger.database.write(lambda tx: documents.drop(tx, "one"))
        elif step == "lose files":
            place.lose_all()
        else:
            ledger.close()
            if step == "back up":
                place.back_up()
            else:
                place.restore()
            ledger = place.open()
        check(ledger)
    ledger.close()
    shutil.rmtree(place.folder)


def test_totals_are_the_same_by_a_base_and_by_the_table(place: Place) -> None:
    ledger = place.open()
    sizes = [entry(number)._replace(chunks=number % 3) for number in range(2 * MANY)]
    write(ledger, *sizes)

    def told() -> list[object]:
        ask = ledger.documents.oversized
        limits = [(2**62, 0), (3, None), (3, 1), (2**62, 5), (6, 2)]
        over = [ask("one", size=size, chunks=chunks, limit=limit) for size, chunks in limits for limit in (0, 2)]
        return [ledger.documents.totals("one"), *over]

    by_the_table = told()
    assert by_the_table[:2] == [(8, 7, 28), (5, [])]
    ledger.documents.compact("one")
    assert read_by(ledger)
    assert told() == by_the_table
    write(ledger, entry(20)._replace(size=100, chunks=9))
    assert ledger.documents.totals("one") == (9, 16, 128), "what was written since counts"


def test_totals_of_what_this_process_has_just_written_need_no_base(place: Place) -> None:
    ledger = place.open()
    ledger.documents.remember("one")
    write_all(ledger, in_columns([entry(number) for number in range(MANY)]))
    write_all(ledger, in_columns([entry(1)._replace(size=50, chunks=7), entry(7)]))
    limits = {"size": 6, "chunks": 3, "limit": 5}
    ledger.database.write(lambda tx: tx.connection.exec_driver_sql("UPDATE documents SET size = 1, chunks = 1"))
    assert ledger.documents.totals("one") == (5, 11, 62), "the table is not looked at"
    assert ledger.documents.oversized("one", **limits)[0] == 2
    other = place.open()
    assert other.documents.totals("one") == (5, 5, 5)
    write(other, entry(8))
    assert ledger.documents.totals("one") == (6, 6, 13), "another process has written since"


def test_totals_do_without_a_base_that_is_lost(place: Place) -> None:
    ledger = place.open()
    write(ledger, *(entry(number) for number in range(MANY)))
    ledger.documents.compact("one")
    (there,) = place.names()
    place.lose(there)
    assert ledger.documents.totals("one") == (4, 4, 6)


class NotForArrow:
    """A file of Python's that Arrow does not ask to write."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        assert name != "write", "a thread of Arrow asks the interpreter"
        return getattr(self._file, name)


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_process_that_ends_while_a_base_is_written_does_not_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_pieces: bool
) -> None:
    """Arrow's thread needs nothing of an interpreter that is not there any more: three in ten were aborted."""
    staged, new_file = Staged.__init__, pieces.NewFile

    def made(self: Staged, file: IO[bytes]) -> None:
        staged(self, file if in_pieces else NotForArrow(file))  # type: ignore[arg-type]

    monkeypatch.setattr(Staged, "__init__", made)
    monkeypatch.setattr(pieces, "NewFile", lambda file, path: new_file(NotForArrow(file), path))  # type: ignore[arg-type]
    ledger = FolderPlace(tmp_path).open()
    write(ledger, *map(entry, range(MANY)))
    ledger.documents.compact("one", in_pieces=in_pieces)
    ledger.close()
    assert list((tmp_path / "ledger-documents").glob("*.arrow"))
