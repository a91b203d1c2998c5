"""Fingerprints: each part moves when its own thing changes, and only then."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from instep.domain.fingerprint import changed_parts
from instep.domain.identity import chunk_id, content_hash, document_id
from instep.domain.texts import cleaned
from instep.errors import UserError
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.embed.hashing import HashingEmbedder
from instep.pipeline.documents.embed.sentence_transformers import SentenceTransformersEmbedder
from instep.pipeline.documents.fingerprint import (
    ROWS,
    fingerprint,
)
from instep.targets.document_target import row_schema


def test_each_part_follows_its_own_setting() -> None:
    base = fingerprint(chunker=Chunker(), embedder=HashingEmbedder(8), parser="p")
    assert sorted(base) == ["chunker", "embedder", "parser", "schema", "words"]
    longer = fingerprint(chunker=Chunker(900), embedder=HashingEmbedder(8), parser="p")
    assert changed_parts(longer, base) == ["chunker"]
    wider = fingerprint(chunker=Chunker(), embedder=HashingEmbedder(9), parser="p")
    assert changed_parts(wider, base) == ["embedder", "schema"]
    shaped = fingerprint(
        chunker=Chunker(), embedder=HashingEmbedder(8), parser="p", transform="instep.domain.texts:cleaned"
    )
    assert changed_parts(shaped, base) == ["transform"]


def test_the_schema_in_words_is_that_of_the_rows() -> None:
    schema = row_schema(8)
    kinds = [str(each.type) if each.name != "vector" else "float32[]" for each in schema]
    words = [f"{each.name}:{kind}{'?' * each.nullable}" for each, kind in zip(schema, kinds, strict=True)]
    assert " ".join(words) == ROWS


def test_golden_ids() -> None:
    document = document_id("file:///docs/a.md")
    assert document == "doc_461bbb6eb236b44c233629ff66cd876a4b27d9e8f7ef7680ce24a89e785af2a1"
    assert (
        chunk_id(document, content_hash(b"text")) == "c14e7c0d3be9c66573427aa6be8f210ce8bf0f6d6e849ca4df520e77bd99cca3"
    )


def test_without_the_extra_a_model_asks_for_it() -> None:
    embedder = SentenceTransformersEmbedder("some-model", 384)
    assert embedder.cached
    assert embedder.fingerprint != SentenceTransformersEmbedder("other-model", 384).fingerprint
    if find_spec("sentence_transformers") is None:
        with pytest.raises(UserError, match=r"instep\[sentence-transformers\]"):
            embedder.embed(["text"])


@pytest.mark.parametrize(
    "text",
    [
        "GET https://user:hunter2@host/path failed",
        "GET https://host/path?X-Signature=hunter2 failed",
        "Authorization: Bearer hunter2hunter2",
        "api_key=hunter2",
        '{"password": "hunter2"}',
        "Incorrect API key: sk-hunter2hunter2",
    ],
)
def test_reasons_hold_no_secrets(text: str) -> None:
    assert "hunter2" not in cleaned(text)


def test_reasons_are_short_and_one_line() -> None:
    assert cleaned("a\n  b\tc") == "a b c"
    assert len(cleaned("word " * 1_000)) == 300
    assert cleaned("lone \ud800").encode() == b"lone ?"
    assert cleaned("nul \0") == "nul ?"
