"""Deleting rows: by address (`fragment << 32 | offset`, as `_rowaddr` gives it), or by where they belong."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import Conflict
from instep.targets.lance.commits import Change, Changed
from instep.targets.lance.location import Location, lance_library
from instep.targets.table_target import DELETED, INSTANCE, THERE, TableSpec, checked_prefix


def delete_rows(physical: str, head: Any, addresses: Iterable[pa.Array[Any]]) -> list[Any]:
    """Metadata of all fragments of `head`, with deletion files for these rows.

    An address stays good as long as its fragment lives (ids are never reused). Raises `Conflict`
    when a fragment was compacted away since, or a row is deleted already.
    """
    import numpy as np

    arrays = [np.asarray(each.to_numpy(zero_copy_only=False), dtype=np.uint64) for each in addresses]
    wanted = np.unique(np.concatenate(arrays)) if arrays else np.empty(0, np.uint64)
    numbers, starts = np.unique(wanted >> np.uint64(32), return_index=True)
    offsets = np.split(wanted & np.uint64(0xFFFFFFFF), starts[1:]) if len(numbers) else []
    fragments = {each.fragment_id: each for each in head.get_fragments()}
    found = {number: each.metadata for number, each in fragments.items()}
    for number, rows in zip(numbers.tolist(), offsets, strict=True):
        if number not in fragments:
            raise Conflict(f"{physical}: rows were moved by a compaction; read them again")
        found[number] = _without(physical, head, fragments[number], rows.tolist())
    return list(found.values())


def _without(physical: str, head: Any, fragment: Any, rows: list[int]) -> Any:
    before = fragment.metadata
    after = fragment.delete_rows(rows)
    if after is None:
        # Nothing is left. Lance gives no fragment then, but a merge must name every fragment. The commit
        # drops this one by itself, unread: a file of its deletions would be one that no version names.
        if before.num_deletions + len(rows) != before.physical_rows:
            raise Conflict(f"{physical}: rows were deleted by another process; read them again")
        before.deletion_file = _deletion_file(head, before.physical_rows)
        return before
    if after.num_deletions != before.num_deletions + len(rows):
        raise Conflict(f"{physical}: rows were deleted by another process; read them again")
    return after


def with_deletions(place: Location, physical: str, head: Any, metadata: Any, rows: Sequence[int]) -> Any:
    """A fragment without deletions so far, with these rows (sorted offsets) deleted. Lance's format: an Arrow file of
    uint32 offsets.
    """
    lance_library()
    from lance.file import LanceFileSession

    deletions = _deletion_file(head, len(rows))
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    offsets = pa.array(rows, pa.uint32())
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "deletions"
        with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, schema) as writer:
            writer.write_batch(pa.record_batch([offsets], schema=schema))
        session = LanceFileSession(place.dataset_uri(physical), storage_options=dict(place.storage_options) or None)
        session.upload_file(str(file), f"_deletions/{metadata.id}-{head.version}-{deletions.id}.arrow")
    metadata.deletion_file = deletions
    return metadata


def _deletion_file(head: Any, rows: int) -> Any:
    """The name of a file of so many deletions, which is still to be written."""
    import secrets

    from lance.fragment import DeletionFile

    return DeletionFile(head.version, secrets.randbits(63), "array", rows, None)


def deletion(place: Location, spec: TableSpec, table: str, *, prefix: str, but: str | None) -> Change:
    """A `Change` that deletes rows of namespaces, or of other instances. What is remembered of deleted rows stays, but
    for that of namespaces which are deleted as a whole.
    """
    scope = checked_prefix(spec, prefix) if prefix else None
    columns, remembered = [*([scope] if scope else []), INSTANCE, DELETED], None if but is None else THERE

    def change(head: Any, _: int) -> Changed:
        addresses, deletions = [], 0
        for batch in head.scanner(columns=columns, filter=remembered, with_row_address=True).to_batches():
            found = batch.filter(pc.starts_with(batch.column(scope), prefix)) if scope else batch
            if but is not None:
                found = found.filter(pc.invert(same(found.column(INSTANCE), but, pa.string())))
            addresses.append(found.column("_rowaddr"))
            deletions += int(pc.sum(found.column(DELETED)).as_py() or 0)
        return Changed(delete_rows(table, head, addresses), [], -deletions)

    return change


def same(column: pa.Array[Any], value: Any, kind: pa.DataType) -> pa.Array[Any]:
    """A mask of the values that are this one, or null if it is None."""
    return pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, kind))
