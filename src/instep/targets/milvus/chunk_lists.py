"""Lists of the chunks that each document of an index may have: a collection beside it, for Milvus Lite in this process.

Milvus Lite finds rows at once by their primary keys, and walks over all of them for anything else. Here a document's
chunk_ids are found by its own id. Of each document all are listed that were ever written, before they are: one that is
not there any more does no harm. No other writer writes at that time (`Location.alone`), else a row could be there that
is not listed: so a server has no lists, and neither has an index that was ever written on one, or in which a row
was found that is not listed. Such an index is searched by a filter, as it is on a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.targets.milvus import layout, location
from instep.targets.milvus.location import Location, Missing
from instep.targets.request_limits import portions

if TYPE_CHECKING:
    import pyarrow as pa

#: Documents or chunks in one request: the longest of documents' lists are some megabytes together.
_AT_ONCE = 500

#: Bytes of a list. Who has more chunks (some 950 of Instep's own ids) is looked for by a filter.
_LIST_BYTES = layout.MAX_TEXT_BYTES

#: Of this document there are more chunks than a list holds.
_MANY = ""

#: chunk_ids by document_id. None: any may be there.
Listed = Mapping[str, frozenset[str] | None]


def create(place: Location, physical: str) -> None:
    """Create the lists of an index that is still to be made. What is left of an earlier one of that name lists too
    much: no harm.
    """
    if not place.remote:
        layout.make(place, location.chunk_lists(physical), _schema())


def forget(place: Location, physical: str) -> None:
    """Drop the lists: from now on the index is searched by a filter."""
    if (collection := location.chunk_lists(physical)) in place.call("list_collections"):
        place.call("drop_collection", collection)


def read(place: Location, physical: str, document_ids: Sequence[str]) -> Listed | None:
    """The rows that may be there of these documents; None if there are no lists."""
    if place.remote:
        return None
    found: dict[str, frozenset[str] | None] = {}
    for some in portions(document_ids, _AT_ONCE):
        try:
            records = place.call(
                "query",
                location.chunk_lists(physical),
                filter=f"document_id in {location.texts(some)}",
                output_fields=["document_id", "chunks"],
                consistency_level="Strong",
            )
        except Missing:
            return None
        found |= dict.fromkeys(some, frozenset())
        found |= {each["document_id"]: _parsed(each["chunks"]) for each in records}
    return found


def add(place: Location, physical: str, rows: pa.RecordBatch) -> None:
    """List rows, before they are written, by one writer at a time. Documents that list them already cost no request."""
    fresh: dict[str, set[str]] = {}
    for document, chunk in zip(rows["document_id"].to_pylist(), rows["chunk_id"].to_pylist(), strict=True):
        fresh.setdefault(str(document), set()).add(str(chunk))
    listed = read(place, physical, list(fresh))
    if listed is None:
        return
    grown = {name: before | fresh[name] for name, before in listed.items() if before is not None}
    records = [_record(name, chunks) for name, chunks in grown.items() if chunks != listed[name]]
    for some in portions(records, _AT_ONCE):
        place.call("upsert", location.chunk_lists(physical), list(some))


def remove(place: Location, physical: str, document_ids: Sequence[str]) -> None:
    """Remove documents that were deleted, by one writer at a time. Who has rows again, since another writer was
    quicker, keeps its list.
    """
    for some in portions(document_ids, _AT_ONCE):
        listed = read(place, physical, some)
        if listed is None:
            return
        chunks = sorted(frozenset().union(*(each for each in listed.values() if each)))
        left = {chunk for portion in portions(chunks, _AT_ONCE) for chunk in _there(place, physical, portion)}
        gone = [document for document, each in listed.items() if each is not None and not each & left]
        if gone:
            place.call("delete", location.chunk_lists(physical), filter=f"document_id in {location.texts(gone)}")


def flush(place: Location, physical: str) -> None:
    """Before the index itself: what is on the disk is listed there."""
    if not place.remote and location.chunk_lists(physical) in place.call("list_collections"):
        place.call("flush", location.chunk_lists(physical))


def check(place: Location, physical: str, rows: pa.RecordBatch) -> None:
    """Another writer of one of these rows has not listed it: then the lists cannot be used."""
    if place.remote:
        return
    documents, chunks = (list(map(str, rows[name].to_pylist())) for name in ("document_id", "chunk_id"))
    with place.alone():
        listed = read(place, physical, sorted(set(documents)))
        pairs = zip(documents, chunks, strict=True)
        odd = [chunk for document, chunk in pairs if listed is not None and not _lists(listed[document], chunk)]
        # It may have gone since it was read, with its document.
        if any(_there(place, physical, some) for some in portions(odd, _AT_ONCE)):
            forget(place, physical)


def _lists(chunks: frozenset[str] | None, chunk: str) -> bool:
    return chunks is None or chunk in chunks


def _there(place: Location, physical: str, chunks: Sequence[str]) -> list[str]:
    """The chunks among these that the index has."""
    where = f"chunk_id in {location.texts(chunks)}"
    collection = location.collection(physical)
    found = place.call("query", collection, filter=where, output_fields=["chunk_id"], consistency_level="Strong")
    return [str(each["chunk_id"]) for each in found]


def _record(document_id: str, chunks: Iterable[str]) -> dict[str, Any]:
    written = json.dumps(sorted(chunks), ensure_ascii=False, separators=(",", ":"))
    fits = len(written.encode()) <= _LIST_BYTES
    return {"document_id": document_id, "chunks": written if fits else _MANY, "nothing": [0.0, 0.0]}


def _parsed(written: str) -> frozenset[str] | None:
    return None if written == _MANY else frozenset(json.loads(written))


def _schema() -> Any:
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("document_id", DataType.VARCHAR, is_primary=True, max_length=layout.MAX_TEXT_BYTES)
    schema.add_field("chunks", DataType.VARCHAR, max_length=layout.MAX_TEXT_BYTES)
    schema.add_field("nothing", DataType.FLOAT_VECTOR, dim=2)
    return schema
