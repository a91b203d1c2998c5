"""Readers of documents that fail: what is indexed of the older version is found by those alone whom both versions name.

A version whose readers cannot be told names nobody. So a revocation counts in a document that fails, too; and whom only
the newer version names does not find the older text, which may say what the newer one does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.identity import OF_TEXT
from instep.domain.readers import among_both
from instep.pipeline.documents.columns import chunk_hashes
from instep.pipeline.documents.diff import chunk_digests, document_digests

if TYPE_CHECKING:
    from instep.domain.document_columns import DeclaredColumn

#: Documents that are looked at together: their texts are read.
TOGETHER: Final = 64

_NOBODY: Final = "it is found by nobody until it is mended"
_BOTH: Final = "until it is mended, it is found by those alone whom its older version names as well"


class Left(NamedTuple):
    """The rows of a document that failed: their number, their digest, and a note if some readers miss them."""

    chunks: int
    digest: int
    note: str = ""


class Narrowed(NamedTuple):
    """Rows (of `retold_schema`) whose readers become fewer, and what is left of each document that has rows."""

    rows: pa.Table
    left: Mapping[str, Left]


def narrow(
    stored: pa.Table, named: Mapping[str, Sequence[str]], readers: str, declared: Sequence[DeclaredColumn]
) -> Narrowed:
    """Narrow the readers of documents that failed. `stored` are all rows of some documents (of `retold_schema`),
    `named` the readers of their newer versions.
    """
    owners = list(map(str, stored["document_id"].to_pylist()))
    before = [each or [] for each in stored[readers].to_pylist()]
    after = [among_both(some, named[owner]) for owner, some in zip(owners, before, strict=True)]
    fewer = pa.array([set(now) != set(then) for now, then in zip(after, before, strict=True)], pa.bool_())
    rows = _with(stored, readers, pa.array([each or None for each in after], stored.schema.field(readers).type))
    # Of title and text they say what they said: what stands before a text is not stored.
    made = chunk_hashes(rows, declared)
    told = pc.utf8_slice_codeunits(_flat(stored["chunk_hash"]), 0, OF_TEXT)
    made = pc.binary_join_element_wise(told, pc.utf8_slice_codeunits(made, OF_TEXT), "")
    hashes: Any = pc.if_else(fewer, made, _flat(stored["chunk_hash"]))
    rows = _with(rows, "chunk_hash", hashes)
    return Narrowed(rows.filter(fewer), _left(rows, owners, after, named))


def _left(
    rows: pa.Table, owners: Sequence[str], after: Sequence[Sequence[str]], named: Mapping[str, Sequence[str]]
) -> Mapping[str, Left]:
    import numpy as np

    documents = list(dict.fromkeys(owners))
    found: dict[str, set[frozenset[str]]] = {each: set() for each in documents}
    for owner, some in zip(owners, after, strict=True):
        found[owner].add(frozenset(some))
    place_of = {each: at for at, each in enumerate(documents)}
    places = np.array([place_of[each] for each in owners], np.int64)
    digests = document_digests(
        chunk_digests(_flat(rows["chunk_id"]), _flat(rows["chunk_hash"])), places, len(documents)
    )
    counts = np.bincount(places, minlength=len(documents))
    return {
        each: Left(int(counts[at]), int(digests[at]), _note(found[each], frozenset(named[each])))
        for at, each in enumerate(documents)
    }


def _note(left: set[frozenset[str]], named: frozenset[str]) -> str:
    if not any(left):
        return _NOBODY
    return _BOTH if any(each != named for each in left) else ""


def _with(rows: pa.Table, name: str, values: Any) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(name), values)


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
