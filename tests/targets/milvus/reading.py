"""What is in an index, as pymilvus' own client reads it."""

from __future__ import annotations

from collections import Counter

from instep.targets.document_target import DocumentTarget
from instep.targets.milvus import location
from instep.targets.milvus.location import Location
from instep.targets.milvus.target import MilvusTarget
from instep.testing.target_rows import Content


def content(target: DocumentTarget, physical: str) -> Content:
    assert isinstance(target, MilvusTarget)
    found = Location(target.uri).call(
        "query",
        location.collection(physical),
        filter='chunk_id != ""',
        output_fields=["document_id", "text"],
        consistency_level="Strong",
    )
    return Counter((each["document_id"], each["text"]) for each in found)
