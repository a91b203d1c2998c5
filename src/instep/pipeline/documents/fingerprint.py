"""Fingerprints of what turns documents into rows."""

from __future__ import annotations

from collections.abc import Sequence

from instep.domain.document_columns import DeclaredColumn
from instep.domain.fingerprint import WORDS, column_fingerprint, column_part, digest
from instep.domain.words import SEARCHED_BY_DEFAULT, Searched
from instep.pipeline.code_fingerprint import loaded_fingerprint
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.embed.embedder import Embedder
from instep.pipeline.loading import load_transform

#: `targets.document_target.row_schema` in words, so that asking for the fingerprint needs no Arrow.
ROWS = (
    "document_id:string document_hash:string source_uri:string source_version:string chunk_id:string "
    "chunk_hash:string chunk_index:int32 title:string? text:string vector:float32[] _searched:string "
    "modified:timestamp[us, tz=UTC]? _ref:string _instance:string _version:int64"
)
#: What is done with the columns, as far as an index that was made in another way would not do it. A chunk's hash is of
#: its title and its text, and words of both are found; its id is of its text.
RULES = "titles-2"


def fingerprint(
    *,
    chunker: Chunker,
    embedder: Embedder,
    transform: str | None = None,
    columns: Sequence[DeclaredColumn] = (),
    parser: str,
    searched: Searched = SEARCHED_BY_DEFAULT,
) -> dict[str, str]:
    """Part → fingerprint: parser, chunker, embedder, schema, words, each declared
    column and, if there is one, transform.
    """
    parts = {
        "parser": parser,
        "chunker": chunker.fingerprint,
        "embedder": embedder.fingerprint,
        "schema": digest([ROWS, RULES, embedder.dimensions]),
        WORDS: searched.fingerprint,
    }
    for each in columns:
        parts[column_part(each.name)] = column_fingerprint(each.column.type, each.origin, each.of, each.lenient)
    if transform is not None:
        parts["transform"] = loaded_fingerprint(transform, load_transform(transform))
    return parts
