"""Hashes of whole columns are those that the domain gives each content."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from instep.arrow.hashes import hashes, hashes_of_parts
from instep.arrow.values import texts_of
from instep.domain.document_columns import DeclaredColumn, DocumentColumn, DocumentColumnType, Origin
from instep.domain.identity import chunk_hash, chunk_id, content_hash
from instep.pipeline.documents.columns import chunk_hashes
from instep.pipeline.documents.rows import CONTEXT

TEXTS = st.none() | st.sampled_from(["", "a", "Ebbe & Flut", "潮", "x" * 300])


TEAM = DeclaredColumn(DocumentColumn("team", DocumentColumnType.STRING), Origin.SOURCE, "team")


@given(st.lists(st.none() | st.binary(max_size=80), max_size=5))
def test_each_content_has_its_own_hash_and_a_null_that_of_nothing(contents: list[bytes | None]) -> None:
    column: Any = pa.array([b"before", *contents, b"behind"], pa.binary())[1:-1]
    assert hashes(column).to_pylist() == [content_hash(each or b"") for each in contents]


@given(st.lists(st.tuples(st.sampled_from(["doc_1", "doc_2"]), st.text("0a", max_size=4)), max_size=5))
def test_ids_of_chunks_are_hashes_of_their_parts(named: list[tuple[str, str]]) -> None:
    documents, texts = (pa.array([each[at] for each in named], pa.string()) for at in (0, 1))
    found = hashes_of_parts(documents, texts, "0", between="|").to_pylist()
    assert found == [chunk_id(document, text) for document, text in named]


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS), max_size=5), st.booleans(), st.booleans())
def test_a_chunk_has_the_hash_of_all_that_is_indexed_of_it(
    rows: list[tuple[str | None, ...]], with_context: bool, with_columns: bool
) -> None:
    names = ("title", "text", CONTEXT, "team")
    table = pa.table({name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)})
    table = table if with_context else table.drop_columns(CONTEXT)
    found = chunk_hashes(table, [TEAM] if with_columns else []).to_pylist()
    said = texts_of({"team": table["team"]}).to_pylist() if with_columns else [""] * len(rows)
    wholes = [
        f"{context}\0{text}" if with_context and context and text is not None else text for _, text, context, _ in rows
    ]
    titles = [title for title, *_ in rows]
    assert found == [chunk_hash(*each) for each in zip(titles, wholes, said, strict=True)]
