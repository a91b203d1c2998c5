"""Collections: as they are made, and as they are found.

A row's primary key is its chunk_id, and it lies in the partition of its document's route bucket. How many buckets
there are, and what their partitions are called, is written into the collection's properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from instep.domain.document_columns import MODIFIED, DocumentColumn, DocumentColumnType
from instep.domain.identity import bucket_of
from instep.errors import UserError
from instep.targets.document_target import SEARCHED
from instep.targets.milvus import location
from instep.targets.milvus.location import Location, Refused

#: What Milvus takes of a text, in bytes.
MAX_TEXT_BYTES = 65_535

#: Elements of a list, as many as Milvus takes.
MAX_ELEMENTS = 4_096

#: The words of a row, as BM25 needs them. Milvus computes it.
WORDS = "_words"

_BUCKETS, _PREFIX = "instep.buckets", "instep.partition_prefix"

#: Words are what stands between spaces: `domain.words` has made them. Milvus Lite has no such tokenizer; its own leaves
#: them as they are, but for letters with marks that are characters of their own.
_ANALYZER, _LITE_ANALYZER = {"tokenizer": "whitespace"}, {"tokenizer": "standard"}


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of an existing collection."""

    dimensions: int
    buckets: int
    prefix: str

    @property
    def first(self) -> str:
        """The first of its partitions."""
        return location.partition(self.prefix, 0)

    def partition(self, document_id: str) -> str:
        return location.partition(self.prefix, bucket_of(document_id, self.buckets))

    def partitions(self, document_ids: Iterable[str]) -> list[str]:
        """The partitions that hold the rows of these documents."""
        return sorted({self.partition(each) for each in document_ids})


def found(place: Location, physical: str) -> Layout:
    """The layout of an index. Raises `UserError` if there is no such index, or if it is none of Instep's."""
    said = place.call("describe_collection", location.collection(physical))
    properties = {str(key): str(value) for key, value in said["properties"].items()}
    vectors = [each["params"]["dim"] for each in said["fields"] if each["name"] == "vector"]
    if not vectors or _BUCKETS not in properties or _PREFIX not in properties:
        raise UserError(
            f"collection {location.collection(physical)!r} is not one of Instep's", where=place.shown, hint="Rename it."
        )
    return Layout(int(vectors[0]), int(properties[_BUCKETS]), properties[_PREFIX])


def exists(place: Location, physical: str) -> bool:
    """An alias is no index."""
    return location.collection(physical) in place.call("list_collections")


def create(place: Location, physical: str, wanted: Layout, columns: Sequence[DocumentColumn] = ()) -> None:
    """Make what of it is not there yet: it is safe to repeat, and several may do it at once."""
    collection = location.collection(physical)
    if not exists(place, physical):
        properties = {_BUCKETS: str(wanted.buckets), _PREFIX: wanted.prefix}
        make(place, collection, _schema(wanted.dimensions, columns, lite=place.is_lite), properties=properties)
    layout = found(place, physical)
    if layout.dimensions != wanted.dimensions:
        raise UserError(
            f"index {physical!r} has {layout.dimensions} dimensions, not {wanted.dimensions}", where=place.shown
        )
    there = set(place.call("list_partitions", collection))
    for bucket in range(layout.buckets):
        name = location.partition(layout.prefix, bucket)
        if name not in there:
            _make_partition(place, collection, name)
    indexes = (
        {"field_name": "vector", "index_type": "AUTOINDEX", "metric_type": "COSINE"},
        {"field_name": WORDS, "index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25"},
        {"field_name": "document_id", "index_type": "INVERTED"},
        # Milvus Lite has no index of lists.
        *(
            {"field_name": each.name, "index_type": "INVERTED"}
            for each in columns
            if not (each.type.listed and place.is_lite)
        ),
    )
    _index(place, collection, indexes)


def create_state(place: Location) -> None:
    """The collection of Instep's own. It has a vector because every collection must."""
    make(place, location.STATE, _state_schema())
    _index(place, location.STATE, [{"field_name": "nothing", "index_type": "AUTOINDEX", "metric_type": "L2"}])


def drop(place: Location, physical: str) -> None:
    """Drop a collection with the aliases that still point to it: else Milvus keeps it."""
    collection = location.collection(physical)
    if not exists(place, physical):
        return
    for alias in place.call("list_aliases", collection)["aliases"]:
        place.call("drop_alias", alias)
    place.call("drop_collection", collection)


def make(place: Location, collection: str, schema: Any, **more: Any) -> None:
    """A collection that may be there already. One shard: what one request writes is seen at once."""
    try:
        place.call("create_collection", collection, schema=schema, num_shards=1, **more)
    except Refused:
        if collection not in place.call("list_collections"):
            raise


def _make_partition(place: Location, collection: str, name: str) -> None:
    try:
        place.call("create_partition", collection, name)
    except Refused:
        if name not in place.call("list_partitions", collection):
            raise


def _index(place: Location, collection: str, indexes: Iterable[dict[str, str]]) -> None:
    """Build what is missing, without waiting for it, and have it all in memory."""
    from pymilvus import MilvusClient

    there = set(place.call("list_indexes", collection))
    for each in indexes:
        if each["field_name"] not in there:
            parameters = MilvusClient.prepare_index_params()
            parameters.add_index(index_name=each["field_name"], **each)
            place.call("create_index", collection, parameters, sync=False)
    place.call("load_collection", collection)


def _schema(dimensions: int, columns: Sequence[DocumentColumn], *, lite: bool) -> Any:
    from pymilvus import DataType, Function, FunctionType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    text = {"datatype": DataType.VARCHAR, "max_length": MAX_TEXT_BYTES}
    schema.add_field("chunk_id", is_primary=True, **text)
    for name in ("document_id", "document_hash", "source_uri", "source_version", "chunk_hash"):
        schema.add_field(name, **text)
    schema.add_field("chunk_index", DataType.INT32)
    schema.add_field("title", nullable=True, **text)
    schema.add_field("text", **text)
    analyzer = _LITE_ANALYZER if lite else _ANALYZER
    schema.add_field(SEARCHED, enable_analyzer=True, enable_match=True, analyzer_params=analyzer, **text)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
    for column in (MODIFIED, *columns):
        schema.add_field(column.name, nullable=True, **_field(column.type))
    for name in ("_ref", "_instance"):
        schema.add_field(name, **text)
    schema.add_field("_version", DataType.INT64)
    schema.add_field(WORDS, DataType.SPARSE_FLOAT_VECTOR)
    bm25 = Function(
        name="bm25", function_type=FunctionType.BM25, input_field_names=[SEARCHED], output_field_names=[WORDS]
    )
    schema.add_function(bm25)
    return schema


def _field(kind: DocumentColumnType) -> dict[str, Any]:
    """The field of a declared column. Moments and dates are numbers, of microseconds and of days since 1970."""
    from pymilvus import DataType

    text, number = {"max_length": MAX_TEXT_BYTES}, DataType.INT64
    match kind:
        case DocumentColumnType.STRING:
            return {"datatype": DataType.VARCHAR, **text}
        case DocumentColumnType.FLOAT:
            return {"datatype": DataType.DOUBLE}
        case DocumentColumnType.BOOL:
            return {"datatype": DataType.BOOL}
        case DocumentColumnType.STRINGS:
            of = {"element_type": DataType.VARCHAR, **text}
            return {"datatype": DataType.ARRAY, "max_capacity": MAX_ELEMENTS, **of}
        case DocumentColumnType.INTS:
            return {"datatype": DataType.ARRAY, "max_capacity": MAX_ELEMENTS, "element_type": number}
    return {"datatype": number}


def _state_schema() -> Any:
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=64)
    for name in ("entry", "name", "attempt", "slice", "outcome"):
        schema.add_field(name, DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    for name in ("seq", "epoch", "fence", "part", "at"):
        schema.add_field(name, DataType.INT64)
    schema.add_field("nothing", DataType.FLOAT_VECTOR, dim=2)
    return schema
