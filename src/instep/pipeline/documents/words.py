"""The words of rows, as a column of their own: what `domain.words` says of a text, for many texts at once.

No word is looked at twice in a batch: the texts are parted in Arrow, and each different run is made a word once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.words import parted
from instep.domain.words import BETWEEN, BYTES, LONGEST, Searched, normal
from instep.pipeline.documents.rows import CONTEXT


def searched_column(rows: pa.Table | pa.RecordBatch, searched: Searched) -> pa.Array[Any]:
    """The words of the searched columns of each row, in one text: those of a column as often as it counts. What stands
    before a text counts as once.
    """
    parts = [
        words for name, weight in searched.weights for words in [_words(_texts(rows[name]), searched.language)] * weight
    ]
    if CONTEXT in rows.schema.names:
        parts.append(_words(_texts(rows[CONTEXT]), searched.language))
    between: Any = pa.scalar(BETWEEN)
    found: pa.Array[Any] = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, between)
    return found


def _texts(column: Any) -> Any:
    texts: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_list(texts.type):
        texts = pc.binary_join(texts, "\n")
    return pc.fill_null(texts, "")


def _words(texts: Any, language: str) -> Any:
    found = parted(_small(texts))
    words = _normal(found.runs, language)
    # Each with a space behind it, so that those of a text lie side by side as they are. What has no word in it, as a
    # dash between spaces, leaves nothing.
    spaced = pc.if_else(pc.equal(words, pa.scalar("")), words, pc.binary_join_element_wise(words, "", " "))
    taken: Any = spaced.take(pa.array(found.indices))
    _, ends, data = taken.buffers()
    bounds = np.frombuffer(ends, np.int32)[found.bounds]
    return pc.ascii_rtrim(pa.StringArray.from_buffers(len(texts), pa.py_buffer(bounds.data), data), " ")


def _normal(runs: Any, language: str) -> Any:
    """The words of each run. A number is its own word in every language, and most numbers are met but once."""
    number: Any = pc.and_(pc.ascii_is_decimal(runs), pc.less_equal(pc.binary_length(runs), pa.scalar(LONGEST)))
    if not number.true_count:
        return pa.array(normal(runs.to_pylist(), language), pa.string())
    others = pa.array(normal(runs.filter(pc.invert(number)).to_pylist(), language), pa.string())
    return pc.replace_with_mask(runs, pc.invert(number), others)


def _small(texts: Any) -> pa.Array[Any]:
    """Texts in small letters, with spaces for all of ASCII that parts words."""
    _, offsets, data = texts.buffers()
    small = pa.py_buffer(b"" if data is None else data.to_pybytes().translate(BYTES))
    return pa.StringArray.from_buffers(len(texts), offsets, small, offset=texts.offset)
