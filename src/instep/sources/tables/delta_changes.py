"""Files with the changes of a Delta table, by the commits in its log: so that several tasks can read them.

A commit with a change data feed names files of that, whose rows say what they are. Another names files that it added
and took away, whose rows came and went.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from instep.domain.table_versions import Between, Unfollowable
from instep.sources.tables.lake import WINDOW_BYTES
from instep.sources.tables.lakes import plain

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: The column of a feed that says what became of a row.
CHANGE_TYPE: Final = "_change_type"
#: Types whose values the log has in one form.
_PLAINLY: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_boolean)


class ChangeFile(NamedTuple):
    """A file by its path in the table. `sign`: its rows came (1), went (-1), or say so one by one (None). `partition`:
    the columns that the file does not have, with the value that all of its rows have there.
    """

    path: str
    size: int
    sign: int | None
    partition: Mapping[str, Any]


def log_of(table: DeltaTable, options: Mapping[str, str]) -> Any:
    """The files of the table, as Arrow reads them."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    handler: Any = DeltaStorageHandler.from_table(table._table, dict(options))
    return PyFileSystem(handler)


def log_file(version: int) -> str:
    """The file of a commit, within the table."""
    return f"_delta_log/{version:020}.json"


def actions_of(files: Any, version: int) -> list[dict[str, Any]]:
    """The actions of a commit. Raises `Unfollowable` if the log has it no more."""
    try:
        with files.open_input_stream(log_file(version)) as file:
            return [json.loads(line) for line in file.read().splitlines() if line.strip()]
    except (OSError, ValueError):
        raise Unfollowable(f"its version {version} is not in its log any more") from None


def change_files(files: Any, schema: pa.Schema, partitions: Sequence[str], between: Between) -> list[ChangeFile] | None:
    """The files of all commits, in order; None where one of them does not lie in the table, or has a partition that is
    not understood here. Raises `Unfollowable` where one does not say its values of the columns in `partitions`: a log
    need not have these of a file that goes.
    """
    found: list[ChangeFile] = []
    for version in range(between.since + 1, between.until + 1):
        actions = actions_of(files, version)
        kinds: dict[str, int | None] = (
            {"cdc": None} if any("cdc" in each for each in actions) else {"add": 1, "remove": -1}
        )
        named = [
            (each[kind], sign)
            for each in actions
            for kind, sign in kinds.items()
            if kind in each and (sign is None or each[kind].get("dataChange", True))
        ]
        for each, sign in named:
            path, size = unquote(each["path"]), each.get("size")
            values = each.get("partitionValues") or {}
            if not values.keys() >= set(partitions):
                raise Unfollowable(f"its version {version} has a file without saying of which partition")
            partition = _partition(schema, values)
            if "://" in path or path.startswith("/") or partition is None or each.get("deletionVector"):
                return None
            found.append(ChangeFile(path, WINDOW_BYTES if size is None else size, sign, partition))
    return found


def _partition(schema: pa.Schema, values: Mapping[str, str | None]) -> Mapping[str, Any] | None:
    """Values of columns as they are written in a log; None for types that are written there in several ways."""
    found = {}
    for name, value in values.items():
        kind: Any = schema.field(name).type if name in schema.names else None
        if kind is None or not any(check(kind) for check in _PLAINLY):
            return None
        found[name] = pa.scalar(value or None, pa.string()).cast(kind)
    return found


def changed_rows(
    files: Any, schema: pa.Schema, names: Sequence[str], each: ChangeFile
) -> Iterator[tuple[pa.RecordBatch, pa.Array[Any] | None]]:
    """These columns of a file's rows; what became of each, where they say it."""
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions, ParquetReadOptions

    # Nanoseconds, as which Spark's timestamps would be read, do not go from the year 1 to 9999.
    form: Any = ParquetFileFormat(
        read_options=ParquetReadOptions(dictionary_columns=None, coerce_int96_timestamp_unit="us"),
        default_fragment_scan_options=ParquetFragmentScanOptions(pre_buffer=True),
    )
    fragment = form.make_fragment(each.path, files)
    told = [] if each.sign is not None else [CHANGE_TYPE]
    whole = pa.schema([*schema, *(pa.field(name, pa.string()) for name in told)])
    for batch in plain(fragment.to_batches(schema=whole, columns=[*names, *told])):
        found: list[Any] = [batch.column(name) for name in names]
        for name, value in each.partition.items():
            if name in names:
                found[names.index(name)] = pa.repeat(value, batch.num_rows)
        yield pa.RecordBatch.from_arrays(found, list(names)), batch.column(CHANGE_TYPE) if told else None
