"""Names, mappings and settings of indexes in OpenSearch and Elasticsearch, and their drift. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from instep.domain.document_columns import MODIFIED, DocumentColumn, DocumentColumnType
from instep.targets.document_target import SEARCHED
from instep.targets.ownership import checked_name

#: Elasticsearch considers so many vectors of a shard for each that is asked for, and so many at most.
_CANDIDATES, _MOST_CANDIDATES = 2, 10_000
_LEAST_CANDIDATES = 200

#: OpenSearch considers as many vectors of a segment as it is asked for: never fewer than so many.
_LEAST_NEIGHBOURS = 100


class Dialect(ABC):
    name: ClassVar[str]
    #: The first version that has all that is needed.
    least: ClassVar[tuple[int, int]]
    #: Settings of an index with vectors.
    settings: ClassVar[Mapping[str, Any]]
    #: Length of the longest vectors, by its documentation.
    longest: ClassVar[int]
    #: What a mapping calls the dimensions of a vector.
    dimensions: ClassVar[str]
    #: The path behind an index that opens a point in time, and what its id is called in the answer.
    opening: ClassVar[tuple[str, ...]]
    opened: ClassVar[str]

    @abstractmethod
    def vector(self, dimensions: int) -> dict[str, Any]:
        """The mapping of a vector that is compared by cosine."""

    @abstractmethod
    def nearest(self, vector: Sequence[float], count: int, chosen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The part of a search that finds the nearest among the rows for which all of these queries hold."""

    @abstractmethod
    def closing(self, moment: str) -> tuple[str, dict[str, Any]]:
        """Path and body of the DELETE that ends a point in time."""


class _OpenSearch(Dialect):
    name = "OpenSearch"
    least = (2, 4)
    longest = 16_000
    settings: ClassVar[Mapping[str, Any]] = {"knn": True}
    dimensions = "dimension"
    opening = ("_search", "point_in_time")
    opened = "pit_id"

    def vector(self, dimensions: int) -> dict[str, Any]:
        method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"}
        return {"type": "knn_vector", self.dimensions: dimensions, "method": method}

    def nearest(self, vector: Sequence[float], count: int, chosen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        # Of few that are asked for it misses some: of 1,000 random vectors among 30,000 of 384 dimensions, 77 did not
        # find themselves at 10, 7 at 50, and none at 100.
        wanted = {"vector": list(vector), "k": max(_LEAST_NEIGHBOURS, count)}
        if chosen:
            wanted["filter"] = {"bool": {"filter": list(chosen)}}
        return {"query": {"knn": {"vector": wanted}}}

    def closing(self, moment: str) -> tuple[str, dict[str, Any]]:
        return "/_search/point_in_time", {"pit_id": [moment]}


class _Elasticsearch(Dialect):
    name = "Elasticsearch"
    least = (8, 11)
    longest = 4_096
    settings: ClassVar[Mapping[str, Any]] = {}
    dimensions = "dims"
    opening = ("_pit",)
    opened = "id"

    def vector(self, dimensions: int) -> dict[str, Any]:
        # Its own default rounds vectors to bytes.
        return {
            "type": "dense_vector",
            self.dimensions: dimensions,
            "index": True,
            "similarity": "cosine",
            "index_options": {"type": "hnsw"},
        }

    def nearest(self, vector: Sequence[float], count: int, chosen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        candidates = min(max(_LEAST_CANDIDATES, _CANDIDATES * count), _MOST_CANDIDATES)
        wanted = {"field": "vector", "query_vector": list(vector), "k": count, "num_candidates": candidates}
        return {"knn": {**wanted, "filter": list(chosen)}}

    def closing(self, moment: str) -> tuple[str, dict[str, Any]]:
        return "/_pit", {"id": moment}


OPENSEARCH: Final[Dialect] = _OpenSearch()
ELASTICSEARCH: Final[Dialect] = _Elasticsearch()


def spoken(version: Mapping[str, Any]) -> Dialect | None:
    """The dialect by the `version` of a server's first page; None: it is neither."""
    if version.get("distribution") == "opensearch":
        return OPENSEARCH
    return ELASTICSEARCH if "build_flavor" in version else None


#: While it is built, an index is refreshed when Instep says so and has no replicas; afterwards OpenSearch's own
#: interval holds, and one replica where there is a second node.
BUILDING: Final[Mapping[str, Any]] = {"refresh_interval": "-1", "number_of_replicas": 0}
SERVING: Final[Mapping[str, Any]] = {"refresh_interval": None, "auto_expand_replicas": "0-1"}

#: That a row was deleted is remembered so long, for writers of the past who would write it again.
_GRACE = "1h"

#: Words are what stands between spaces: `domain.words` has made them.
_WORDS: Final[Mapping[str, Any]] = {"type": "text", "analyzer": "whitespace"}

#: For what others ask the index.
_TEXT: Final[Mapping[str, Any]] = {"type": "text"}
_FOUND: Final[Mapping[str, Any]] = {"type": "keyword"}
#: Read, never looked for.
_KEPT: Final[Mapping[str, Any]] = {"type": "keyword", "index": False}

#: A title as a filter compares it; a longer one than anybody gives is found by its words only.
TITLE: Final = "title.whole"
_WHOLE: Final[Mapping[str, Any]] = {"type": "keyword", "ignore_above": 8_191}

#: Columns that are keywords; Lucene takes so many bytes of each.
KEYWORDS: Final = (
    "document_id",
    "document_hash",
    "source_uri",
    "source_version",
    "chunk_id",
    "chunk_hash",
    "instep_ref",
    "instep_instance",
)
KEYWORD_BYTES = 32_766

#: Names that begin with an underscore are OpenSearch's own where a document begins.
RENAMED: Final[Mapping[str, str]] = {
    "_ref": "instep_ref",
    "_instance": "instep_instance",
    "_version": "instep_version",
    SEARCHED: "instep_searched",
}
WORDS: Final = RENAMED[SEARCHED]


#: Moments and dates are numbers, of microseconds and of days since 1970: a `date` has milliseconds.
_TYPES: Final[Mapping[DocumentColumnType, str]] = {
    DocumentColumnType.STRING: "keyword",
    DocumentColumnType.INT: "long",
    DocumentColumnType.FLOAT: "double",
    DocumentColumnType.BOOL: "boolean",
    DocumentColumnType.TIMESTAMP: "long",
    DocumentColumnType.DATE: "long",
    DocumentColumnType.STRINGS: "keyword",
    DocumentColumnType.INTS: "long",
}


def properties(dialect: Dialect, dimensions: int, columns: Sequence[DocumentColumn]) -> dict[str, Any]:
    found = {"document_id", "chunk_id", "source_uri"}
    return {
        **{name: dict(_FOUND if name in found else _KEPT) for name in KEYWORDS},
        "chunk_index": {"type": "integer"},
        "title": {**_TEXT, "fields": {"whole": _WHOLE}},
        "text": dict(_TEXT),
        WORDS: dict(_WORDS),
        "vector": dialect.vector(dimensions),
        **{each.name: {"type": _TYPES[each.type]} for each in (MODIFIED, *columns)},
        "instep_version": {"type": "long", "index": False},
    }


def chunks_index(dialect: Dialect, dimensions: int, columns: Sequence[DocumentColumn] = ()) -> dict[str, Any]:
    settings = {**BUILDING, **dialect.settings, "gc_deletes": _GRACE}
    return {
        "settings": {"index": settings},
        "mappings": {
            "dynamic": "strict",
            "properties": properties(dialect, dimensions, columns),
        },
    }


def is_building(settings: Mapping[str, Any]) -> bool:
    """Whether an index is being built, by its flat settings (`index.…`)."""
    return bool(settings.get("index.refresh_interval") == BUILDING["refresh_interval"])


def drifted(
    dialect: Dialect, mappings: Mapping[str, Any], dimensions: int, columns: Sequence[DocumentColumn] = ()
) -> list[str]:
    """The differences of an existing index's mappings from those that it would be made with, sorted."""
    there: Mapping[str, Mapping[str, Any]] = mappings.get("properties", {})
    wanted = properties(dialect, dimensions, columns)
    found = [f"{name} is missing" for name in wanted.keys() - there.keys()]
    found += [f"{name} is not Instep's" for name in there.keys() - wanted.keys()]
    for name in wanted.keys() & there.keys():
        for key in ("type", dialect.dimensions, "analyzer", "index"):
            says, should = there[name].get(key), wanted[name].get(key)
            if says != should:
                found.append(f"{key} of {name} is {says}, not {should}")
    return sorted(found)


#: What the journals of earlier versions do not have.
LATER: Final[Mapping[str, Any]] = {"owner": _KEPT, "scope": _FOUND}

#: The journals of all indexes and aliases; see `log`. `marks` and `outcome` are only read.
STATE_INDEX: Final[Mapping[str, Any]] = {
    "settings": {"index": {"number_of_shards": 1, "auto_expand_replicas": "0-1"}},
    "mappings": {
        "dynamic": "strict",
        "properties": {
            "log": _FOUND,
            "slices": _FOUND,
            "seq": {"type": "long"},
            "epoch": {"type": "long"},
            "at": {"type": "long"},
            "token": _KEPT,
            "entry": _KEPT,
            "attempt": _KEPT,
            "physical": _KEPT,
            **LATER,
            "marks": {"type": "object", "enabled": False},
            "outcome": {"type": "binary"},
        },
    },
}


#: No index of Instep's has this character in its name.
_MARK = "+"

#: Holds what Instep knows of its indexes: no name of an index is coded like this.
STATE = "instep+journal"

#: An index that is made and dropped again, to see whether that can be done; nor is this the name of one.
PROBE = "instep+check-"


def coded(name: str) -> str:
    """`Document__1` is `document__1+1`: behind the plus which letters are capitals, as a hexadecimal number."""
    capitals = sum(1 << place for place, letter in enumerate(checked_name(name)) if letter.isupper())
    return f"{name.lower()}{_MARK}{capitals:x}" if capitals else name


def decoded(index: str) -> str | None:
    """The name of an index; None: it is not one that Instep has named."""
    small, mark, said = index.partition(_MARK)
    if not mark:
        return small
    try:
        capitals = int(said, 16)
    except ValueError:
        return None
    return "".join(letter.upper() if capitals >> place & 1 else letter for place, letter in enumerate(small))
