"""Changes that wait in files, a batch for each bucket, until a plan is cut out of them: a slice is held at a time."""

from __future__ import annotations

import hashlib
import shutil
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, overload
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ChangeColumns, ChangesElsewhere, of_stream, stream_of
from instep.document_state.cuts import runs
from instep.document_state.difference import CHANGES as SCHEMA
from instep.document_state.pieces import new_file, read_whole, write_whole
from instep.domain.jobs import SlicePlan, StoredSlice
from instep.domain.manifest import Action, DocumentChange
from instep.domain.planning import SliceSizing, grown, slices_allowed

#: A slice, and its place in the file that has its changes.
CUT: Final = pa.schema(
    dict.fromkeys(("bucket", "units", "work", "at", "bytes"), pa.int64())
    | dict.fromkeys(("first", "digest", "file"), pa.string())
)
CHANGES: Final = ".changes"
PLAN: Final = ".plan"
#: Up to so many changes are read, and cut as any others.
FEW: Final = 100_000
#: Seconds after which a folder is one that was left behind.
_LEFT_BEHIND: Final = 86_400.0


class PartFile(NamedTuple):
    """A file of changes of a part, and the bucket of each of its batches."""

    name: str
    buckets: Sequence[int]

    def read(self, folder: Path) -> pa.Table:
        return read_whole(folder, self.name, CHANGES).read_all()

    def bucket(self, folder: Path, bucket: int) -> pa.Table:
        """The changes of a bucket: of all readers of the file only `read` looks whether it is whole."""
        mapped = pa.memory_map(str(folder / f"{self.name}{CHANGES}"))
        return pa.Table.from_batches([pa.ipc.open_file(mapped).get_batch(self.buckets.index(bucket))])


def write_part(folder: Path, changes: pa.Table) -> PartFile | None:
    """Write the changes of a part by bucket and id, a batch for each bucket; None if there are none."""
    if not changes.num_rows:
        return None
    table = changes.sort_by([("bucket", "ascending"), ("document_id", "ascending")]).combine_chunks()
    numbers = table["bucket"].to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    (whole,) = table.to_batches()
    batches = [whole.slice(start, stop - start) for start, stop in pairwise(starts)]
    return PartFile(write_whole(folder, CHANGES, *batches), [int(numbers[start]) for start in starts[:-1]])


@dataclass(frozen=True)
class Cutting:
    """Cuts the changes of buckets into slices of about `most` rows. Picklable: a task does a bucket."""

    files: Sequence[PartFile]
    sizing: SliceSizing
    most: int
    folder: Path

    def cut(self, bucket: int) -> pa.RecordBatch:
        """Write the slices of a bucket into a file; a row of `CUT` for each."""
        portions = (each.bucket(self.folder, bucket) for each in self.files if bucket in each.buckets)
        found: list[dict[str, Any]] = []
        whole, at = hashlib.blake2b(digest_size=16), 0
        with new_file(self.folder) as new:
            for changes, work in runs(portions, self.sizing, self.most):
                data = stream_of(changes)
                first = changes.table["document_id"][0].as_py()
                digest = hashlib.blake2b(data, digest_size=16).hexdigest()
                found.append({"bucket": bucket, "units": len(changes), "work": work, "at": at, "first": first})
                found[-1] |= {"bytes": len(data), "digest": digest}
                at += new.file.write(data)
                whole.update(digest.encode())
            new.name = f"{whole.hexdigest()}{PLAN}"
        return pa.RecordBatch.from_pylist([{**each, "file": new.name} for each in found], CUT)


#: Cuts these buckets: rows of `CUT`.
Cut: TypeAlias = Callable[[Cutting, Sequence[int]], pa.Table]


def cut_here(cutting: Cutting, buckets: Sequence[int]) -> pa.Table:
    """Cut in this process, one bucket after the other."""
    return pa.Table.from_batches([cutting.cut(each) for each in buckets], CUT)


class Workspace:
    """A folder that goes with the last reference to this object."""

    def __init__(self, among: Path) -> None:
        _sweep(among)
        self.folder = among / uuid4().hex
        self.folder.mkdir(parents=True)
        self._gone = weakref.finalize(self, _remove, self.folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # Planning leaves nothing behind where nothing was.
        folder.parent.rmdir()


def _sweep(among: Path) -> None:
    with suppress(OSError):
        for each in among.iterdir():
            if time.time() - each.stat().st_mtime > _LEFT_BEHIND:
                shutil.rmtree(each, ignore_errors=True)


class StoredChanges(ChangesElsewhere):
    """Changes in files of parts, in the order of these; read when they are asked for, and not kept."""

    def __init__(self, cut: Cut, work: Workspace, files: Sequence[PartFile], actions: Counter[str]) -> None:
        self.work, self.files = work, files
        self._cut, self._actions = cut, actions

    def few(self) -> Sequence[DocumentChange]:
        """The changes, read into memory if they are few."""
        return self.read() if len(self) <= FEW else self

    def cut(self, sizing: SliceSizing, *, priority: int) -> list[SlicePlan]:
        """See `document_state.cuts.cut_columns`; the two give the same slices."""
        buckets = sorted({bucket for each in self.files for bucket in each.buckets})
        most = sizing.rows_per_slice
        while True:
            found = self._cut(Cutting(self.files, sizing, most, self.work.folder), buckets)
            if found.num_rows <= slices_allowed(len(buckets)):
                return _slices(found, self.work, priority)
            most = grown(most, found.num_rows)

    def counts(self, name: str) -> Counter[str]:
        """The number of changes by action, which is all that is counted."""
        assert name == "action", "nothing else is counted"
        return self._actions

    def names(self) -> Iterator[str]:
        """Files are called after their content."""
        return (each.name for each in self.files)

    def read(self) -> ChangeColumns:
        """Read all changes, in the order of their URIs, deletes last."""
        tables = [each.read(self.work.folder) for each in self.files]
        if not tables:
            return ChangeColumns(SCHEMA.empty_table())
        table = pa.concat_tables(tables).unify_dictionaries()
        deletes: Any = pc.equal(table["action"].cast(pa.string()), pa.scalar(str(Action.DELETE)))
        keyed = table.append_column("last", deletes.cast(pa.int8()))
        return ChangeColumns(keyed.sort_by([("last", "ascending"), ("uri", "ascending")]).drop_columns("last"))

    def __len__(self) -> int:
        return self._actions.total()

    def __iter__(self) -> Iterator[DocumentChange]:
        for each in self.files:
            yield from ChangeColumns(each.read(self.work.folder))

    @overload
    def __getitem__(self, at: int) -> DocumentChange: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[DocumentChange]: ...
    def __getitem__(self, at: int | slice) -> DocumentChange | Sequence[DocumentChange]:
        wanted = range(len(self))[at]
        if isinstance(wanted, range):
            places = {place: number for number, place in enumerate(wanted)}
            found = {places[place]: each for place, each in enumerate(self) if place in places}
            return [found[number] for number in range(len(wanted))]
        return next(each for place, each in enumerate(self) if place == wanted)


def _slices(found: pa.Table, work: Workspace, priority: int) -> list[SlicePlan]:
    """Plan slices. Each bucket's first and last slice are open-ended."""
    rows = found.sort_by([("bucket", "ascending"), ("first", "ascending")]).to_pylist()
    slices: list[SlicePlan] = []
    for bucket, group in groupby(rows, lambda row: row["bucket"]):
        here = list(group)
        for position, row in enumerate(here):
            stored = StoredSlice(str(work.folder / row["file"]), row["at"], row["bytes"], row["digest"])
            slices.append(
                SlicePlan(
                    index=len(slices),
                    bucket=bucket,
                    lower="" if position == 0 else row["first"],
                    upper="" if position == len(here) - 1 else here[position + 1]["first"],
                    units=row["units"],
                    work=row["work"],
                    priority=priority,
                    columns=partial(_changes, work, stored),
                    stored=stored,
                )
            )
    return slices


def _changes(work: Workspace, stored: StoredSlice) -> ChangeColumns:
    """While this can be called, the folder is there."""
    with Path(stored.file).open("rb") as file:
        file.seek(stored.at)
        return of_stream(file.read(stored.bytes))
