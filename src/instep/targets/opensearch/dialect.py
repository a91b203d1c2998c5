"""Differences of OpenSearch and Elasticsearch: vector fields and nearest-neighbour queries. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

#: Elasticsearch considers so many vectors of a shard for each that is asked for, and so many at most.
_CANDIDATES, _MOST_CANDIDATES = 2, 10_000
_LEAST_CANDIDATES = 100


class Dialect(ABC):
    name: ClassVar[str]
    #: The first version that has all that is needed.
    least: ClassVar[tuple[int, int]]
    #: Settings of an index with vectors.
    settings: ClassVar[Mapping[str, Any]]
    #: What a mapping calls the dimensions of a vector.
    dimensions: ClassVar[str]
    #: The path behind an index that opens a point in time, and what its id is called in the answer.
    opening: ClassVar[tuple[str, ...]]
    opened: ClassVar[str]

    @abstractmethod
    def vector(self, dimensions: int) -> dict[str, Any]:
        """The mapping of a vector that is compared by cosine."""

    @abstractmethod
    def nearest(self, vector: Sequence[float], count: int) -> dict[str, Any]:
        """The part of a search that finds the nearest."""

    @abstractmethod
    def closing(self, moment: str) -> tuple[str, dict[str, Any]]:
        """Path and body of the DELETE that ends a point in time."""


class _OpenSearch(Dialect):
    name = "OpenSearch"
    least = (2, 4)
    settings: ClassVar[Mapping[str, Any]] = {"knn": True}
    dimensions = "dimension"
    opening = ("_search", "point_in_time")
    opened = "pit_id"

    def vector(self, dimensions: int) -> dict[str, Any]:
        method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"}
        return {"type": "knn_vector", self.dimensions: dimensions, "method": method}

    def nearest(self, vector: Sequence[float], count: int) -> dict[str, Any]:
        return {"query": {"knn": {"vector": {"vector": list(vector), "k": count}}}}

    def closing(self, moment: str) -> tuple[str, dict[str, Any]]:
        return "/_search/point_in_time", {"pit_id": [moment]}


class _Elasticsearch(Dialect):
    name = "Elasticsearch"
    least = (8, 11)
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

    def nearest(self, vector: Sequence[float], count: int) -> dict[str, Any]:
        candidates = min(max(_LEAST_CANDIDATES, _CANDIDATES * count), _MOST_CANDIDATES)
        return {"knn": {"field": "vector", "query_vector": list(vector), "k": count, "num_candidates": candidates}}

    def closing(self, moment: str) -> tuple[str, dict[str, Any]]:
        return "/_pit", {"id": moment}


OPENSEARCH: Final[Dialect] = _OpenSearch()
ELASTICSEARCH: Final[Dialect] = _Elasticsearch()


def spoken(version: Mapping[str, Any]) -> Dialect | None:
    """By the `version` of a server's first page; None: it is neither."""
    if version.get("distribution") == "opensearch":
        return OPENSEARCH
    return ELASTICSEARCH if "build_flavor" in version else None
