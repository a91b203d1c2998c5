"""The ids of rows: what their keys are as text, for failures and for people."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: For a key that is none.
_NULL = "null"

#: Characters that a ledger has room for.
_LONGEST = 80


def row_ids(keys: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """Key columns of declared types, joined by commas. What no ledger can keep is shortened."""
    columns: list[Any] = [*map(_texts, keys), ","]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*columns, null_handling="replace", null_replacement=_NULL)
    odd = _odd(joined)
    if not odd.true_count:
        return joined
    texts = joined.filter(odd).to_pylist()
    found: pa.Array[Any] = pc.replace_with_mask(joined, odd, pa.array([_short(str(each)) for each in texts]))
    return found


def row_uri(entity: str, row_id: str) -> str:
    """The name of a row for people."""
    return f"{entity}({row_id})"


def id_of(entity: str, uri: str) -> str:
    """The id of the row that `row_uri` made this of."""
    return uri.removeprefix(f"{entity}(").removesuffix(")")


def _odd(ids: Any) -> Any:
    length: Any = pc.utf8_length(ids)
    long: Any = pc.greater(length, pa.scalar(_LONGEST))
    unkept: Any = pc.match_substring(ids, "\0")
    return pc.or_(long, unkept)


def _short(text: str) -> str:
    """The beginning of a text and a digest. PostgreSQL stores no NUL."""
    return f"{text[:40].replace(chr(0), '?')}…{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _texts(values: pa.Array[Any]) -> pa.Array[Any]:
    return _in_hex(values) if pa.types.is_binary(values.type) else values.cast(pa.string())


def _in_hex(values: pa.Array[Any]) -> pa.Array[Any]:
    """Encode all values at once: they lie behind each other, and each byte becomes two characters."""
    rows, there = len(values), values.is_valid()
    values = values.fill_null(b"")
    _, places, content = values.buffers()
    assert places is not None
    offsets = np.frombuffer(memoryview(places), np.int32)[values.offset : values.offset + rows + 1]
    text = content[int(offsets[0]) : int(offsets[-1])].to_pybytes().hex() if content else ""
    starts = pa.py_buffer((offsets - offsets[0]) * np.int32(2))
    found = pa.Array.from_buffers(pa.string(), rows, [None, starts, pa.py_buffer(text.encode())])
    with_nulls: pa.Array[Any] = pc.if_else(there, found, pa.scalar(None, pa.string()))
    return with_nulls
