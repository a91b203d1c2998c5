"""A base in pieces, for tasks: whatever becomes of its files, what tasks read is what the ledger's table says."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from instep.document_state import corpus_parts
from instep.document_state.pieces import PIECE, StateLost
from instep.domain.counts import Counts
from instep.domain.manifest import ManifestEntry
from instep.domain.waves import SliceOutcome
from instep.ledger import document_pages, documents
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from tests.contracts.ledger.building import START, VirtualClock


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base of four documents, in pieces of two."""
    monkeypatch.setattr(documents, "_BASE_ROWS", 4)
    monkeypatch.setattr(document_pages, "_PAGE", 4)
    monkeypatch.setattr(corpus_parts, "_DOCUMENTS", 2)
    monkeypatch.setattr("instep.ledger.bases._GRACE", -1.0)


def opened(folder: Path) -> Ledger:
    return open_ledger(f"sqlite:///{folder}/ledger.db", clock=VirtualClock(START))


def name(number: int) -> str:
    return f"doc_{number * 2:x}{0:063d}"


def write(ledger: Ledger, *numbers: int, version: str = "v1", removed: tuple[str, ...] = ()) -> None:
    entries = [ManifestEntry(name(each), f"table://Row/{9 - each}", each, version, "hash", 1, 0) for each in numbers]
    outcome = SliceOutcome("s", 1, Counts(), entries, list(removed))
    ledger.database.write(lambda tx: documents._write(tx, "one", [outcome]))


def check(ledger: Ledger) -> bool:
    """Tasks and the driver read what the table says. Whether a file was said to be lost or damaged."""
    entries = ledger.documents.entries("one").values()
    known = sorted(tuple(getattr(each, column) for column in PIECE) for each in entries)
    said = False
    with TemporaryDirectory() as folder:
        try:
            found = ledger.documents.in_pieces("one", Path(folder))
            said, recorded = found.lost, found.between("", "")
        except StateLost:
            said, recorded = True, ledger.documents.in_pieces("one", Path(folder), afresh=True).between("", "")
        assert [tuple(each.values()) for each in recorded.to_pylist()] == known
    columns = ledger.documents.columns("one", ["document_id", "version"])
    assert sorted(map(str, columns["document_id"].to_pylist())) == [each[0] for each in known]
    return said


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted((folder / "ledger-documents").glob(f"*{suffix}"))


def test_pieces_are_read_with_what_was_written_since(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    write(ledger, *range(6))
    ledger.documents.compact("one", in_pieces=True)
    assert (len(files(tmp_path, ".pieces")), len(files(tmp_path, ".arrow"))) == (1, 3)
    assert not check(ledger)
    write(ledger, 1, 7, version="v2")
    assert not check(ledger)
    write(ledger, removed=(name(2),))
    assert not check(ledger)
    ledger.documents.compact("one", in_pieces=True)
    assert not check(ledger)
    ledger.documents.compact("one")
    assert files(tmp_path, ".pieces") == []
    assert not check(ledger)


@pytest.mark.parametrize("harm", ["lost", "torn", "value"])
def test_a_piece_that_is_harmed_is_said_and_written_anew(tmp_path: Path, harm: str) -> None:
    ledger = opened(tmp_path)
    write(ledger, *range(6))
    ledger.documents.compact("one", in_pieces=True)
    file = next(each for each in files(tmp_path, ".arrow") if name(3).encode() in each.read_bytes())
    data = file.read_bytes()
    file.unlink()
    if harm != "lost":
        file.write_bytes(data[:-9] if harm == "torn" else data.replace(name(3).encode(), name(9).encode()))
    assert check(ledger)
    ledger.documents.compact("one", in_pieces=True)
    assert not check(ledger)
    with pytest.MonkeyPatch.context() as later:
        later.setattr("instep.ledger.bases._FORM", 2)
        assert not check(ledger)  # A form to come is none: the table is read.


class _Killed(BaseException):
    """In place of `kill -9`: nothing of what it interrupts goes on."""


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("step", ["os.fsync", "rename", "_name", "_named", "unlink"])
def test_pieces_may_be_left_between_every_two_steps(tmp_path: Path, step: str, anew: bool) -> None:
    ledger = opened(tmp_path)
    write(ledger, *range(6))
    if anew:
        ledger.documents.compact("one", in_pieces=True)
        write(ledger, *range(3), version="v2")

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
            ledger.documents.compact("one", in_pieces=True)  # There is nothing to remove.
        else:
            with pytest.raises(_Killed):
                ledger.documents.compact("one", in_pieces=True)
    ledger.close()
    again = opened(tmp_path)
    assert not check(again)
    write(again, 1, version="v3")
    assert not check(again)
    again.documents.compact("one", in_pieces=True)
    assert not check(again)
