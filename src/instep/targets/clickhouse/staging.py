"""A task's side: files of Arrow streams in a folder that the driver reads too. Nothing here needs ClickHouse."""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from instep.errors import UserError
from instep.targets.clickhouse.layout import REPEATED
from instep.targets.table_target import Moved, TableChange, TableSpec, arrow_schema, checked_rows, spec_of

if TYPE_CHECKING:
    import pyarrow as pa

#: What one insert takes, which is all or nothing: one block, one part.
INSERT_ROWS = 1_000_000
INSERT_BYTES = 128 * 1024 * 1024

#: A build of an entity's index by a ledger: see `domain.refs`.
_BUILD = re.compile("(.+__[0-9a-f]{8}_)[0-9a-f]{8}")

#: Fewer rows are not parted for the sake of a second core: every part is merged later.
_LEAST_ROWS = 100_000


class StagedFile(NamedTuple):
    kind: str
    path: str
    rows: int
    size: int
    moved: Moved | None = None


def encode(files: Sequence[StagedFile]) -> bytes:
    return json.dumps({"files": files}).encode()


def decode(staged: bytes) -> list[StagedFile]:
    return [StagedFile(*each) for each in json.loads(staged)["files"]]


def inserts(files: Sequence[StagedFile], at_once: int) -> list[list[StagedFile]]:
    """The files by inserts: as few of these as they take, though equally many for each of so many that run at once,
    where that pays: no wave waits for the last one alone. Neighbours stay together: their rows are in order, mostly.
    The same files give the same inserts.
    """
    kinds = dict.fromkeys(each.kind for each in files)
    return [some for kind in kinds for some in _shared([each for each in files if each.kind == kind], at_once)]


def _shared(files: Sequence[StagedFile], at_once: int) -> list[list[StagedFile]]:
    total = sum(each.rows for each in files)
    least = max(-(-total // INSERT_ROWS), -(-sum(each.size for each in files) // INSERT_BYTES))
    wanted = max(1, min(-(-least // at_once) * at_once, max(least, total // _LEAST_ROWS)))
    found: list[list[StagedFile]] = []
    before = rows = size = share = 0
    for each in files:
        # By where its middle lies: shares differ by half a file at most.
        lies = (2 * before + each.rows) * wanted // max(1, 2 * total)
        before, rows, size = before + each.rows, rows + each.rows, size + each.size
        if not found or lies != share or rows > INSERT_ROWS or size > INSERT_BYTES:
            found.append([])
            rows, size, share = each.rows, each.size, lies
        found[-1].append(each)
    return found


@dataclass
class ClickHouseTableWriter:
    """See `TableWriter`."""

    folder: str
    specs: Sequence[TableSpec]

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        outputs: dict[Moved | None, _Output] = {}
        schemas: dict[str, pa.Schema] = {}
        try:
            for kind, rows, moved, _ in changes:
                spec = spec_of(self.specs, kind)
                schema = schemas.setdefault(kind, arrow_schema(spec))
                if rows.num_rows:
                    if moved not in outputs:
                        outputs[moved] = _Output(self.folder)
                    outputs[moved].add(kind, _with_dictionaries(checked_rows(spec, schema, rows)))
            for output in outputs.values():
                output.close()
        except BaseException:
            for output in outputs.values():
                output.abandon()
            raise
        return encode([file._replace(moved=moved) for moved, output in outputs.items() for file in output.files])


def restaged(folder: str, kind: str, tables: Iterator[pa.Table]) -> list[StagedFile]:
    """The rest of staged rows, as a commit takes it."""
    output = _Output(folder)
    for table in tables:
        for rows in table.combine_chunks().to_batches():
            output.add(kind, _with_dictionaries(rows))
    output.close()
    return output.files


def staged_rows(path: str) -> pa.Table:
    """A file's rows, without the dictionaries of their bookkeeping."""
    import fsspec
    import pyarrow as pa

    with fsspec.open(path, "rb") as file, pa.ipc.open_stream(file) as stream:
        rows = stream.read_all()
    for name in REPEATED:
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows.column(name).cast(pa.string()))
    return rows


def _with_dictionaries(rows: pa.RecordBatch) -> pa.RecordBatch:
    for name in REPEATED:
        column = rows.column(name).dictionary_encode()
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


@dataclass
class _Open:
    path: str
    file: Any
    stream: Any
    rows: int = 0
    size: int = 0


@dataclass
class _Output:
    """The open files of a task: one for each table."""

    folder: str
    files: list[StagedFile] = field(default_factory=list)
    _open: dict[str, _Open] = field(default_factory=dict)

    def add(self, kind: str, rows: pa.RecordBatch) -> None:
        for at in range(0, rows.num_rows, INSERT_ROWS):
            some = rows.slice(at, INSERT_ROWS)
            there = self._open.get(kind)
            if there and (there.rows + some.num_rows > INSERT_ROWS or there.size + some.nbytes > INSERT_BYTES):
                self._finish(kind)
                there = None
            if there is None:
                there = self._open[kind] = self._begin(kind, some.schema)
            there.stream.write_batch(some)
            there.rows += some.num_rows
            there.size += some.nbytes

    def _begin(self, kind: str, schema: pa.Schema) -> _Open:
        import pyarrow as pa

        path = f"{self.folder}/{uuid.uuid4().hex}.arrow"
        file = _opened(path)
        # Not compressed: it lies there for a moment only, and the engine takes half as long again to unpack it.
        return _Open(path, file, pa.ipc.new_stream(file, schema))

    def _finish(self, kind: str) -> None:
        there = self._open.pop(kind)
        there.stream.close()
        there.file.close()
        self.files.append(StagedFile(kind, there.path, there.rows, there.size))

    def close(self) -> None:
        for kind in list(self._open):
            self._finish(kind)

    def abandon(self) -> None:
        for each in self._open.values():
            each.file.close()
        remove([*(each.path for each in self.files), *(each.path for each in self._open.values())])


def _opened(path: str) -> Any:
    if "://" in path:
        import fsspec

        return fsspec.open(path, "wb").open()
    import pyarrow as pa

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return pa.OSFile(path, "wb")  # Arrow writes to it by itself: through Python it takes several times as long.


def remove(paths: Sequence[str]) -> None:
    """Remove files; those that cannot be removed are swept later."""
    import contextlib

    import fsspec

    for each in paths:
        with contextlib.suppress(OSError):
            system, path = fsspec.url_to_fs(each)
            system.rm_file(path)


def sweep(root: str, physical: str, keep_seconds: float) -> None:
    """Remove what killed tasks staged for this index, and for those of the entity that were dropped: files that were
    last changed so long ago by the clock of their own store, which one file is written to ask for.
    """
    import contextlib

    import fsspec

    system, top = fsspec.url_to_fs(root)
    with contextlib.suppress(OSError):
        ours = _siblings(physical)
        folders = [info["name"] for info in system.ls(top, detail=True) if ours(info["name"].rpartition("/")[2])]
        found = [info for folder in folders for info in system.ls(folder, detail=True)]
        # Mostly there is nothing. Clocks differ by less than that.
        if min(map(_changed, found), default=math.inf) < time.time() - keep_seconds / 2:
            before = _clock(system, folders[0]) - keep_seconds
            for info in found:
                if _changed(info) < before:
                    system.rm_file(info["name"])


def remove_folder(folder: str) -> None:
    """Remove a folder of staged files, if nothing is in it."""
    import contextlib

    import fsspec

    system, path = fsspec.url_to_fs(folder)
    with contextlib.suppress(OSError):
        system.rmdir(path)


def _siblings(physical: str) -> Callable[[str], bool]:
    """Whether a name is of this index, or of another build of it by the same ledger."""
    build = _BUILD.fullmatch(physical)
    if build is None:
        return lambda name: name == physical
    return lambda name: (other := _BUILD.fullmatch(name)) is not None and other[1] == build[1]


def _clock(system: Any, folder: str) -> float:
    """Now, in seconds since 1970, by the clock of the store."""
    probe = f"{folder}/{uuid.uuid4().hex}"
    try:
        system.pipe_file(probe, b"now")
        return _changed(system.info(probe))
    finally:
        system.rm_file(probe)


def _changed(info: Mapping[str, Any]) -> float:
    moment = info.get("mtime", info.get("LastModified"))
    return float(moment.timestamp() if hasattr(moment, "timestamp") else moment or 0)


def check(folder: str) -> None:
    """Check that tasks can write here. Raises `UserError` if not."""
    probe = f"{folder}/{uuid.uuid4().hex}"
    try:
        _opened(probe).close()
        remove([probe])
    except OSError as error:
        raise UserError(
            f"staged rows cannot be written: {error}", where=folder, hint="Check the target's staging folder."
        ) from None
