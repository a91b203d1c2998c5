"""Ids and versions of rows that are documents, for many rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.identity import content_hash, titled_content
from instep.domain.row_documents import NULL, SCHEME, key_part

#: Text that is the same in a URI.
_PLAIN = "^[A-Za-z0-9_.~:-]*$"
#: Versions are kept in ledgers; longer ones, and those with a NUL in it, are by their hash.
_LONGEST = 128


def row_uris(entity: str, keys: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """As `domain.row_documents.row_uri` has them."""
    texts: list[Any] = [pa.scalar(SCHEME + entity), *map(_parts, keys), "/"]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*texts, null_handling="replace", null_replacement=NULL)
    return joined


def _parts(values: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_integer(values.type):
        return values.cast(pa.string())
    if pa.types.is_string(values.type):
        plain: Any = pc.match_substring_regex(values, _PLAIN)
        if pc.all(plain, min_count=0).as_py():
            return values
    coded: Any = values.dictionary_encode()
    texts = pa.array([key_part(each) for each in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def row_versions(values: pa.Array[Any]) -> pa.Array[Any]:
    """The values of a version column as text, the same one from whatever the table is read; a null is none."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        texts: Any = pa.array([each if each is None else each.hex() for each in values.to_pylist()], pa.string())
    else:
        texts = values.cast(pa.string())
    texts = texts.fill_null("")
    long: Any = pc.greater(pc.binary_length(texts), pa.scalar(_LONGEST))
    odd: Any = pc.or_(long, pc.match_substring(texts, "\0"))
    if not pc.any(odd, min_count=0).as_py():
        versions: pa.Array[Any] = texts
        return versions
    found: Any = texts.filter(odd)
    short = pa.array([content_hash(each.encode()) for each in found.to_pylist()], pa.string())
    replaced: pa.Array[Any] = pc.replace_with_mask(texts, odd, short)
    return replaced


def versions_of(values: pa.Array[Any], titles: pa.Array[Any] | None, texts: pa.Array[Any]) -> pa.Array[Any]:
    """The values of a version column as text. Of a row that has none its content tells whether it has changed."""
    found: Any = row_versions(values)
    if not values.null_count:
        return found  # type: ignore[no-any-return]  # of texts
    without = values.is_null()
    hashes = content_versions(None if titles is None else titles.filter(without), texts.filter(without))
    versions: pa.Array[Any] = pc.replace_with_mask(found, without, hashes)
    return versions


def content_versions(titles: pa.Array[Any] | None, texts: pa.Array[Any]) -> pa.Array[Any]:
    """The versions of rows that have no column for it: a hash of all that they say (bytes). A null says nothing."""
    if titles is None:
        return pa.array([content_hash(text or b"") for text in texts.to_pylist()], pa.string())
    pairs = zip(titles.to_pylist(), texts.to_pylist(), strict=True)
    return pa.array([content_hash(titled_content(title or b"", text or b"")) for title, text in pairs], pa.string())
