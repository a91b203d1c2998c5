"""Base files: what is known of an instance's documents, in Arrow columns beside the ledger, which says which of them
count.

They say nothing that the ledger does not: one that is lost, torn or damaged is told, and costs a read of the table. A
file is called after the digest of its bytes, so the name that the ledger has tells whether it is as it was written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, TypeVar

from instep.errors import InstepError
from instep.ledger.base_form import BASE, known
from instep.ledger.state_files import StateFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.document_state.pieces import PieceFiles

T = TypeVar("T")

_SUFFIX: Final = ".arrow"
#: Of a list of pieces, each a file of its own.
_LIST: Final = ".pieces"
#: Of lists, and of the pieces in them.
_FORM: Final = 1
_NAME: Final = re.compile("[0-9a-f]{32}")
#: Seconds for which a file that nothing names is left alone: its writer may be about to name it. No lease is longer.
_GRACE: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """The base files among the state files."""

    files: StateFiles

    def read(self, name: str) -> pa.Table | None:
        """A file, mapped into memory: a column that is not looked at takes none. None if it is lost or damaged: Arrow
        itself does not look, and takes wrong bytes for values, or crashes on them. Raises `Transient` during an outage.
        """
        import pyarrow as pa

        pieces = self.pieces(name)
        if pieces is not None:
            return _whole(pieces)
        try:
            with self.files.whole(f"{name}{_SUFFIX}") as file:
                _demand(file, name)
                with pa.memory_map(str(file)) as mapped:
                    return pa.ipc.open_file(mapped).read_all()
        except FileNotFoundError:
            harm = "lost"
        except (OSError, pa.ArrowInvalid):
            harm = "damaged"
        logging.getLogger("instep").warning(
            "%s: the base file %s is %s; the ledger has what was in it, and it is written again after the next job",
            *(self.files.where, name, harm),
        )
        return None

    def sums(self, name: str, of: Callable[[pa.Table], Sequence[int]]) -> list[int] | None:
        """The sums of some numbers `of` the entries in a base; a piece of it is in memory at a time. None as above."""
        pieces = self.pieces(name)
        if pieces is None:
            whole = known(self.read(name))
            return None if whole is None else list(of(whole))
        found = _told(lambda: [of(each) for each in pieces.tables()])
        return None if found is None else [sum(numbers) for numbers in zip(*found, strict=True)]

    def pieces(self, name: str) -> PieceFiles | None:
        """The pieces that a base is made of, by its list of them; None if it has none of a form that is known here."""
        from instep.document_state.pieces import Piece, PieceFiles

        if self.files.folder is None:
            return None
        try:
            listed = (self.files.folder / f"{name}{_LIST}").read_bytes()
        except OSError:
            return None
        if hashlib.blake2b(listed, digest_size=16).hexdigest() != name:
            return None
        form, pieces = json.loads(listed)
        return PieceFiles(self.files.folder, tuple(Piece(*each) for each in pieces)) if form == _FORM else None

    def write_pieces(self, tables: Iterable[pa.Table]) -> str:
        """Write tables in the order of their ids as pieces, and return the name of the list of them. Only in a
        folder, where tasks can map them.
        """
        from instep.document_state.pieces import write_pieces

        assert self.files.folder is not None, "a folder"
        listed = json.dumps([_FORM, write_pieces(self.files.folder, tables).pieces]).encode()
        name = hashlib.blake2b(listed, digest_size=16).hexdigest()
        with self.files.staged(uuid.uuid4().hex) as staged:
            staged.file.write(listed)
            staged.name = f"{name}{_LIST}"
        return name

    def write(self, table: pa.Table) -> str:
        """Write a file, and return its name, which only the same bytes have. It is whole, or not there."""
        import pyarrow as pa

        with self.files.staged(uuid.uuid4().hex) as staged:
            # Without a file of Python's: the process may end meanwhile, and a thread of Arrow that asks the interpreter
            # for something by then makes it crash.
            with pa.OSFile(str(staged.path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            name = _digest(staged.path)
            staged.name = f"{name}{_SUFFIX}"
        return name

    def remove_all_but(self, names: Collection[str]) -> None:
        """Remove files that are not named, nor pieces of these, unless a process may be writing them. Their age is by
        their own clock: that of the one that was written last.
        """
        kept = set(names)
        for name in names:
            if pieces := self.pieces(name):
                kept.update(each.digest for each in pieces.pieces)
        with suppress(OSError, InstepError):
            there = self.files.written()
            newest = max(there.values(), default=0.0)
            for name, at in there.items():
                stem = PurePath(name).stem
                if _NAME.fullmatch(stem) and stem not in kept and newest - at > _GRACE:
                    self.files.remove(name)


def _whole(pieces: PieceFiles) -> pa.Table | None:
    return _told(lambda: pieces.between("", "").select(list(BASE)).sort_by("uri"))


def _told(read: Callable[[], T]) -> T | None:
    """The answer, or None where a piece is lost or damaged, which is said."""
    from instep.document_state.pieces import StateLost

    try:
        return read()
    except StateLost as error:
        logging.getLogger("instep").warning(
            "%s; the ledger has what was in it, and it is written again after the next job", error
        )
        return None


def _demand(file: Path, name: str) -> None:
    if _digest(file) != name:
        raise OSError("not the bytes that were written")


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, partial(hashlib.blake2b, digest_size=16)).hexdigest()
