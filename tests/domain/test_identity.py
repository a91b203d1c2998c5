"""Identity: canonical URIs, document and chunk ids, buckets. Golden values must never change."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.identity import (
    IdentityError,
    bucket_of,
    canonical_uri,
    chunk_id,
    chunk_ids,
    document_id,
    file_uri,
)


@pytest.mark.parametrize(
    ("given_uri", "expected"),
    [
        ("HTTPS://User:secret@Example.COM:8443/Docs/A.md?sig=abc#top", "https://example.com:8443/Docs/A.md"),
        ("s3://Bucket/key%20one.md", "s3://bucket/key%20one.md"),
        ("file:///tmp/A%3Fb.md", "file:///tmp/A%3Fb.md"),
        ("PROJECT:///docs/A%3Fb.md?x#y", "project:///docs/A%3Fb.md"),
        ("project:///../docs/a.md", "project:///../docs/a.md"),
        ("http://[2001:DB8::1]:80/x", "http://[2001:db8::1]:80/x"),
        ("https://example.com/a//b/../c", "https://example.com/a//b/../c"),
    ],
)
def test_canonical_uri_lowers_scheme_and_host_and_drops_user_query_and_fragment(given_uri: str, expected: str) -> None:
    assert canonical_uri(given_uri) == expected


@pytest.mark.parametrize(
    "unsafe",
    [
        "",
        "project://",
        "project:///",
        "no-scheme/path",
        "https://",
        "http://host:port/x",
        "https://h/a b?token=hunter2",
        "https://h/\x00hunter2",
    ],
)
def test_unsafe_uris_are_refused_without_echoing_them(unsafe: str) -> None:
    with pytest.raises(IdentityError) as refused:
        canonical_uri(unsafe)
    assert "hunter2" not in str(refused.value)


def test_a_signed_url_keeps_its_identity_and_bucket_when_the_signature_rotates() -> None:
    ids = {document_id(canonical_uri(f"https://host/doc.md?X-Signature={n}")) for n in range(20)}
    assert len(ids) == 1
    assert len({bucket_of(each, 16) for each in ids}) == 1


def test_golden_vectors() -> None:
    identity = document_id("file:///docs/a.md")
    assert identity == "doc_" + hashlib.sha256(b"file:///docs/a.md").hexdigest()
    head = hashlib.sha256(identity.encode()).digest()[:4]
    assert [bucket_of(identity, n) for n in (1, 4, 16)] == [
        int.from_bytes(head, "big", signed=True) % n for n in (1, 4, 16)
    ]
    # Computed by sha256sum, written down once: a change here would move every document.
    assert [bucket_of(each, 4) for each in ("doc_A", "doc_B", "doc_C")] == [1, 2, 3]
    # Whether the first four bytes are signed only shows where buckets are no power of two.
    assert [bucket_of(each, 7) for each in ("doc_K", "doc_M", "doc_N")] == [4, 3, 3]
    assert chunk_id("doc_A", "hash") == "094d2792e213a7a2cfa2307b00b34089524826bc67d4fa27c180d11a8eedd671"
    assert (
        chunk_ids("doc_A", ["hash", "other", "hash"])[2]
        == chunk_id("doc_A", "hash", 1)
        == "1e38fa03333e2518ac17abb0213496cbd3e2a9ce151c8f81c3c58e518f79bc54"
    )


@given(st.text(min_size=1), st.integers(1, 1024))
def test_every_document_has_exactly_one_bucket_within_range(identity: str, buckets: int) -> None:
    bucket = bucket_of(identity, buckets)
    assert 0 <= bucket < buckets
    assert bucket == bucket_of(identity, buckets)


def test_a_route_without_buckets_is_refused() -> None:
    with pytest.raises(ValueError, match="bucket"):
        bucket_of("doc_A", 0)


@given(st.binary(min_size=1, max_size=255).filter(lambda name: b"/" not in name and b"\0" not in name))
def test_plain_and_odd_names_are_quoted_by_the_same_rule(name: bytes) -> None:
    assert file_uri(b"/docs/" + name) == "file:///docs/" + quote(name, safe="-._~!$&'()*+,;=:@")


@given(st.binary(min_size=1, max_size=255).filter(lambda name: b"/" not in name and b"\0" not in name))
def test_any_file_name_becomes_a_uri_of_its_own_that_survives_canonicalisation(name: bytes) -> None:
    uri = file_uri(b"/docs/" + name)
    assert canonical_uri(uri) == uri
    other = file_uri(b"/docs/" + name + b"x")
    assert document_id(canonical_uri(other)) != document_id(canonical_uri(uri))
