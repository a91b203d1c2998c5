"""A task's side: files of Arrow streams in a folder that the driver reads too. Nothing here needs ClickHouse."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from instep.errors import UserError
from instep.targets.clickhouse.layout import REPEATED
from instep.targets.tables import TableChange, TableSpec, arrow_schema, checked_rows, spec_of

if TYPE_CHECKING:
    import pyarrow as pa

#: One file is one insert, which is all or nothing: one block, one part.
FILE_ROWS = 1_000_000
FILE_BYTES = 128 * 1024 * 1024


class StagedFile(NamedTuple):
    kind: str
    path: str


def encode(files: Sequence[StagedFile]) -> bytes:
    return json.dumps({"files": files}).encode()


def decode(staged: bytes) -> list[StagedFile]:
    return [StagedFile(*each) for each in json.loads(staged)["files"]]


@dataclass
class ClickHouseTableWriter:
    """See `TableWriter`."""

    folder: str
    specs: Sequence[TableSpec]

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        output = _Output(self.folder)
        schemas: dict[str, pa.Schema] = {}
        try:
            for kind, rows in changes:
                spec = spec_of(self.specs, kind)
                schema = schemas.setdefault(kind, arrow_schema(spec))
                if rows.num_rows:
                    output.add(kind, _with_dictionaries(checked_rows(spec, schema, rows)))
            output.close()
        except BaseException:
            output.abandon()
            raise
        return encode(output.files)


def _with_dictionaries(rows: pa.RecordBatch) -> pa.RecordBatch:
    for name in REPEATED:
        column = rows.column(name).dictionary_encode()
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


@dataclass
class _Open:
    path: str
    file: IO[bytes]
    stream: Any
    rows: int = 0
    size: int = 0


@dataclass
class _Output:
    """One open file for each table."""

    folder: str
    files: list[StagedFile] = field(default_factory=list)
    _open: dict[str, _Open] = field(default_factory=dict)

    def add(self, kind: str, rows: pa.RecordBatch) -> None:
        for at in range(0, rows.num_rows, FILE_ROWS):
            some = rows.slice(at, FILE_ROWS)
            there = self._open.get(kind)
            if there and (there.rows + some.num_rows > FILE_ROWS or there.size + some.nbytes > FILE_BYTES):
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
        self.files.append(StagedFile(kind, path))
        # Not compressed: it lies there for a moment only, and the engine takes half as long again to unpack it.
        return _Open(path, file, pa.ipc.new_stream(file, schema))

    def _finish(self, kind: str) -> None:
        there = self._open.pop(kind)
        there.stream.close()
        there.file.close()

    def close(self) -> None:
        for kind in list(self._open):
            self._finish(kind)

    def abandon(self) -> None:
        for each in self._open.values():
            each.file.close()
        remove(self.files)


def _opened(path: str) -> Any:
    import fsspec

    # Only a local folder has to be made.
    options = {} if "://" in path else {"auto_mkdir": True}
    return fsspec.open(path, "wb", **options).open()


def remove(files: Sequence[StagedFile]) -> None:
    """What cannot be removed is swept up later."""
    import contextlib

    import fsspec

    for each in files:
        with contextlib.suppress(OSError):
            system, path = fsspec.url_to_fs(each.path)
            system.rm_file(path)


def sweep(folder: str, older_than: float) -> None:
    """Remove what tasks left that was never committed: files last changed before this moment (seconds since 1970)."""
    import contextlib

    import fsspec

    system, root = fsspec.url_to_fs(folder)
    with contextlib.suppress(OSError):
        for info in system.ls(root, detail=True):
            if _changed(info) < older_than:
                system.rm_file(info["name"])


def _changed(info: Mapping[str, Any]) -> float:
    moment = info.get("mtime", info.get("LastModified"))
    return float(moment.timestamp() if hasattr(moment, "timestamp") else moment or 0)


def check(folder: str) -> None:
    """Raises `UserError` when tasks could not write here."""
    probe = f"{folder}/{uuid.uuid4().hex}"
    try:
        _opened(probe).close()
        remove([StagedFile("", probe)])
    except OSError as error:
        raise UserError(
            f"staged rows cannot be written: {error}", where=folder, hint="Check the target's staging folder."
        ) from None
