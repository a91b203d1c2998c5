"""Mappings and settings of indexes, while they are built and after, and their drift. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from instep.targets.opensearch.dialect import Dialect

#: While it is built, an index is refreshed when Instep says so and has no replicas; afterwards OpenSearch's own
#: interval holds, and one replica where there is a second node.
_BUILDING: Final[Mapping[str, Any]] = {"refresh_interval": "-1", "number_of_replicas": 0}
SERVING: Final[Mapping[str, Any]] = {"refresh_interval": None, "auto_expand_replicas": "0-1"}

#: That a row was deleted is remembered so long, for writers of the past who would write it again.
_GRACE = "1h"

#: As OpenSearch's `english`, and words are found without their accents too.
_ANALYSIS: Final[Mapping[str, Any]] = {
    "filter": {
        "instep_possessive": {"type": "stemmer", "language": "possessive_english"},
        "instep_stop": {"type": "stop", "stopwords": "_english_"},
        "instep_stem": {"type": "stemmer", "language": "english"},
    },
    "analyzer": {
        "instep": {
            "type": "custom",
            "tokenizer": "standard",
            "filter": ["instep_possessive", "lowercase", "instep_stop", "instep_stem", "asciifolding"],
        }
    },
}

_TEXT: Final[Mapping[str, Any]] = {"type": "text", "analyzer": "instep"}
_FOUND: Final[Mapping[str, Any]] = {"type": "keyword"}
#: Read, never looked for.
_KEPT: Final[Mapping[str, Any]] = {"type": "keyword", "index": False}

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
RENAMED: Final[Mapping[str, str]] = {"_ref": "instep_ref", "_instance": "instep_instance", "_version": "instep_version"}


def properties(dialect: Dialect, dimensions: int) -> dict[str, Any]:
    found = {"document_id", "chunk_id"}
    return {
        **{name: dict(_FOUND if name in found else _KEPT) for name in KEYWORDS},
        "chunk_index": {"type": "integer"},
        "title": dict(_TEXT),
        "text": dict(_TEXT),
        "vector": dialect.vector(dimensions),
        "instep_version": {"type": "long", "index": False},
    }


def chunks_index(dialect: Dialect, dimensions: int) -> dict[str, Any]:
    settings = {**_BUILDING, **dialect.settings, "gc_deletes": _GRACE}
    return {
        "settings": {"index": settings, "analysis": _ANALYSIS},
        "mappings": {"dynamic": "strict", "properties": properties(dialect, dimensions)},
    }


def is_building(settings: Mapping[str, Any]) -> bool:
    """By the flat settings of an index (`index.…`)."""
    return bool(settings.get("index.refresh_interval") == _BUILDING["refresh_interval"])


def drifted(dialect: Dialect, mappings: Mapping[str, Any], dimensions: int) -> list[str]:
    """How the mappings of an index that is there differ from those that it would be made with, sorted."""
    there: Mapping[str, Mapping[str, Any]] = mappings.get("properties", {})
    wanted = properties(dialect, dimensions)
    found = [f"{name} is missing" for name in wanted.keys() - there.keys()]
    found += [f"{name} is not Instep's" for name in there.keys() - wanted.keys()]
    for name in wanted.keys() & there.keys():
        for key in ("type", dialect.dimensions, "analyzer", "index"):
            says, should = there[name].get(key), wanted[name].get(key)
            if says != should:
                found.append(f"{key} of {name} is {says}, not {should}")
    return sorted(found)


#: What the journals of earlier versions do not have.
OWNED: Final[Mapping[str, Any]] = {"owner": _KEPT}

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
            **OWNED,
            "marks": {"type": "object", "enabled": False},
            "outcome": {"type": "binary"},
        },
    },
}
