"""Rows that wait in a file, part by part, and the part that a document of any id is in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.document_state import spool
from instep.document_state.corpus_parts import bounds, parts_of, parts_of_ids
from instep.document_state.identities import heads_of
from instep.document_state.spool import Spool
from instep.domain.identity import canonical_uri, document_id

SCHEMA = pa.schema(dict[str, pa.DataType](text=pa.string(), number=pa.int64()))

batches = st.lists(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3)), max_size=6), max_size=6)
ids = st.one_of(st.text(max_size=12), st.uuids().map(lambda each: document_id(f"file:///{each}")))


def batch(rows: Sequence[tuple[str, int]]) -> tuple[pa.RecordBatch, Any]:
    texts = [{"text": text, "number": number} for number, (text, _) in enumerate(rows)]
    return pa.RecordBatch.from_pylist(texts, schema=SCHEMA), np.array([part for _, part in rows], np.int32)


@pytest.mark.parametrize("together", [1, 5, 100])
@given(found=batches)
def test_each_part_is_read_by_itself_in_the_order_in_which_it_came(
    together: int, found: list[list[tuple[str, int]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch, closing(Spool(SCHEMA, 4)) as there:
        patch.setattr(spool, "_TOGETHER", together)
        patch.setattr(spool, "_OF_A_PART", 0)
        assert there.fill(map(batch, found)) == sum(map(len, found))
        for part in (3, 0, 2, 1):
            expected = [(text, n) for rows in found for n, (text, of) in enumerate(rows) if of == part]
            assert [(row["text"], row["number"]) for row in there.part(part).to_pylist()] == expected


@given(some=st.lists(ids, max_size=10), parts=st.sampled_from([1, 2, 16, 4_096]))
def test_every_id_is_within_the_bounds_of_its_part(some: list[str], parts: int) -> None:
    found = parts_of_ids(pa.chunked_array([pa.array(some, pa.string())]), parts)
    for each, part in zip(some, found.tolist(), strict=True):
        lower, upper = bounds(part, parts)
        assert lower <= each
        assert not upper or each < upper


def test_the_part_of_a_document_is_that_of_its_uri() -> None:
    uris = [f"table://Ticket/{number}" for number in range(500)]
    by_id = parts_of_ids(pa.chunked_array([[document_id(canonical_uri(each)) for each in uris]]), 64)
    assert by_id.tolist() == parts_of(heads_of(pa.chunked_array([uris])), 64).tolist()
