"""Fingerprints of what turns documents into rows: when a part changes, the rows are out of date."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from instep.domain.fingerprint import digest
from instep.pipeline.documents import parse
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.code_fingerprint import loaded_fingerprint
from instep.pipeline.documents.embed.embedder import Embedder

#: `targets.document_target.row_schema` in words, so that asking for the fingerprint needs no Arrow.
ROWS = (
    "document_id:string document_hash:string source_uri:string source_version:string chunk_id:string "
    "chunk_hash:string chunk_index:int32 title:string? text:string vector:float32[] "
    "_ref:string _instance:string _version:int64"
)
#: What is done with the columns, as far as an index that was made in another way would not do it. A chunk's hash is of
#: its title and its text, and words of both are found.
RULES = "titles-1"


def fingerprint(*, chunker: Chunker, embedder: Embedder, transform: Callable[..., Any] | None = None) -> dict[str, str]:
    """Part → fingerprint: parser, chunker, embedder, schema and, if there is one, transform."""
    parts = {
        "parser": parse.fingerprint(),
        "chunker": chunker.fingerprint,
        "embedder": embedder.fingerprint,
        "schema": digest([ROWS, RULES, embedder.dimensions]),
    }
    if transform is not None:
        parts["transform"] = loaded_fingerprint(transform)
    return parts
