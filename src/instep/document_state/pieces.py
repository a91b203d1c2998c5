"""Pieces of a record: files of its documents in the order of their ids, which tasks read one by one.

The name of a piece is the digest of its bytes, so a reader sees whether it is as it was written.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import Transient

#: Columns of a piece, which is in the order of the ids.
PIECE: Final = ("document_id", "uri", "size", "version", "chunks", "document_hash")
SUFFIX: Final = ".arrow"


class StateLost(Transient):
    """A piece is lost or damaged."""


class Piece(NamedTuple):
    """A file, with the least id in it."""

    digest: str
    first: str
    rows: int

    def file(self, folder: Path) -> Path:
        return folder / f"{self.digest}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class PieceFiles:
    """Pieces in a folder, in the order of their ids."""

    folder: Path
    pieces: Sequence[Piece]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.pieces)

    def missing(self) -> list[Piece]:
        return [each for each in self.pieces if not each.file(self.folder).exists()]

    def damaged(self) -> bool:
        """Whether a file is lost, or not as it was written."""
        return bool(self.missing()) or any(digest_of(each.file(self.folder)) != each.digest for each in self.pieces)

    def tables(self) -> Iterator[pa.Table]:
        """The pieces one by one, mapped into memory, after an empty one. Raises `StateLost`."""
        yield piece_schema().empty_table()
        for each in self.pieces:
            yield _read(each, self.folder)

    def between(self, lower: str, upper: str) -> pa.Table:
        """The documents with ids from `lower` on that are less than `upper` ('' is none)."""
        found = []
        for at, each in enumerate(self.pieces):
            ends_before = at + 1 < len(self.pieces) and self.pieces[at + 1].first <= lower
            if not ends_before and not (upper and each.first >= upper):
                found.append(_within(_read(each, self.folder), lower, upper))
        return pa.concat_tables(found) if found else piece_schema().empty_table()


@dataclass(frozen=True, slots=True)
class Recorded:
    """The record of an instance in files: pieces, and those of what was written later. `removed`: of the ids in `base`
    that were removed since.
    """

    base: PieceFiles
    later: PieceFiles
    removed: PieceFiles
    #: Whether there was a base, of which a file is lost.
    lost: bool = False

    @property
    def documents(self) -> int:
        """The number of documents, or more."""
        return self.base.rows + self.later.rows

    def damaged(self) -> bool:
        """Whether a file of it is not as it was written."""
        return self.base.damaged() or self.later.damaged() or self.removed.damaged()

    def between(self, lower: str, upper: str) -> pa.Table:
        """The documents with ids from `lower` on that are less than `upper` ('' is none), in the order of their ids."""
        base = self.base.between(lower, upper)
        later, removed = self.later.between(lower, upper), self.removed.between(lower, upper)
        for gone in (removed, later):
            if gone.num_rows:
                base = base.filter(pc.invert(pc.is_in(base["document_id"], value_set=gone["document_id"])))
        return pa.concat_tables([base, later]).sort_by("document_id") if later.num_rows else base


def piece_schema() -> pa.Schema:
    kinds = {"size": pa.int64(), "chunks": pa.int64()}
    return pa.schema([(name, kinds.get(name, pa.string())) for name in PIECE])


def write_pieces(folder: Path, tables: Iterable[pa.Table | pa.RecordBatch]) -> PieceFiles:
    """Write tables that are in the order of their ids, each as a piece. A file is whole, or not there."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Piece] = []
    for each in tables:
        if not each.num_rows:
            continue
        table = pa.Table.from_batches([each]) if isinstance(each, pa.RecordBatch) else each.combine_chunks()
        digest = write_whole(folder, SUFFIX, *table.to_batches())
        found.append(Piece(digest, str(each.column(0)[0].as_py()), each.num_rows))
    return PieceFiles(folder, tuple(found))


def write_whole(folder: Path, suffix: str, *batches: pa.RecordBatch) -> str:
    """Write an Arrow file, and return its digest, after which it is called."""
    with new_file(folder) as new:
        # Without a file of Python's, which a process that ends meanwhile has no more: see `BaseFiles.write`.
        with pa.OSFile(str(new.path), "wb") as file, pa.ipc.new_file(file, batches[0].schema) as writer:
            for each in batches:
                writer.write_batch(each)
        digest = digest_of(new.path)
        new.name = f"{digest}{suffix}"
    return digest


@dataclass
class NewFile:
    """A file that is being written, and the name that it gets in the end."""

    file: BufferedWriter
    path: Path
    name: str = ""


@contextmanager
def new_file(folder: Path) -> Iterator[NewFile]:
    """A file that is in the folder as a whole, and durable, once it has its name; before that it has another one. An
    error of the disk names the folder, which Python's own does not if a write fails.
    """
    torn = folder / uuid.uuid4().hex
    try:
        with torn.open("wb") as file:
            yield (new := NewFile(file, torn))
            file.flush()
            os.fsync(file.fileno())
        torn.rename(folder / new.name)
    except BaseException as error:
        with suppress(OSError):
            torn.unlink()
        if isinstance(error, OSError) and error.errno and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), str(folder)) from error
        raise


def digest_of(file: Path) -> str:
    """The digest of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, partial(hashlib.blake2b, digest_size=16)).hexdigest()


def read_whole(folder: Path, name: str, suffix: str) -> pa.ipc.RecordBatchFileReader:
    """Open such a file, mapped into memory. Raises `StateLost` if it is not as it was written."""
    file = folder / f"{name}{suffix}"
    try:
        if digest_of(file) == name:
            return pa.ipc.open_file(pa.memory_map(str(file)))
        why = "its bytes are not those that were written"
    except (OSError, pa.ArrowInvalid) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
    raise StateLost(f"{file} is lost or damaged: {why}")


def _read(piece: Piece, folder: Path) -> pa.Table:
    return read_whole(folder, piece.digest, SUFFIX).read_all()


def _within(table: pa.Table, lower: str, upper: str) -> pa.Table:
    ids: Any = table["document_id"]
    if ids[0].as_py() >= lower and (not upper or ids[-1].as_py() < upper):
        return table  # As a rule a piece is a part: nothing of it is copied.
    inside: Any = pc.greater_equal(ids, pa.scalar(lower))
    if upper:
        inside = pc.and_(inside, pc.less(ids, pa.scalar(upper)))
    return table.filter(inside)
