"""The words of rows, as a column of their own: what `domain.words` says of a text, for many texts at once.

No word is looked at twice in a batch: the texts are parted in Arrow, and each different run is made a word once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.words import Parted, runs_of
from instep.domain.words import BETWEEN, LONGEST, Searched, normal
from instep.pipeline.documents.rows import CONTEXT

#: The column whose runs may be known.
TEXT: Final = "text"


def searched_column(rows: pa.Table | pa.RecordBatch, searched: Searched, runs: Parted | None = None) -> pa.Array[Any]:
    """The words of the searched columns of each row, in one text: those of a column as often as it counts. What stands
    before a text counts as once. `runs`: those of the texts, if they are known.
    """
    parts: list[Any] = []
    for name, weight in searched.weights:
        known = runs if name == TEXT else None
        parts += [_words(_column_runs(rows[name]) if known is None else known, searched.language)] * weight
    if CONTEXT in rows.schema.names:
        parts.append(_words(_column_runs(rows[CONTEXT]), searched.language))
    between: Any = pa.scalar(BETWEEN)
    found: pa.Array[Any] = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, between)
    return found


def _column_runs(column: Any) -> Parted:
    texts: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_list(texts.type):
        texts = pc.binary_join(texts, "\n")
    return runs_of(pc.fill_null(texts, ""))


def _words(found: Parted, language: str) -> Any:
    words = _normal(found.runs, language)
    # Each with a space behind it, so that those of a text lie side by side as they are. What has no word in it, as a
    # dash between spaces, leaves nothing.
    spaced = pc.if_else(pc.equal(words, pa.scalar("")), words, pc.binary_join_element_wise(words, "", " "))
    taken: Any = spaced.take(pa.array(found.indices))
    _, ends, data = taken.buffers()
    bounds = np.frombuffer(ends, np.int32)[found.bounds]
    return pc.ascii_rtrim(pa.StringArray.from_buffers(len(bounds) - 1, pa.py_buffer(bounds.data), data), " ")


def _normal(runs: Any, language: str) -> Any:
    """The words of each run."""
    several: Any = pc.match_substring(runs, "_")
    if not several.true_count:
        return _normal_each(runs, language)
    # A name as `first_name` has the words of its parts.
    parts: Any = pc.split_pattern(runs, "_")
    words = pa.ListArray.from_arrays(parts.offsets, _normal_each(parts.flatten(), language))
    return pc.utf8_trim(pc.replace_substring_regex(pc.binary_join(words, " "), " +", " "), " ")


def _normal_each(runs: Any, language: str) -> Any:
    """A number is its own word in every language, and most numbers are met but once."""
    number: Any = pc.and_(pc.ascii_is_decimal(runs), pc.less_equal(pc.binary_length(runs), pa.scalar(LONGEST)))
    if not number.true_count:
        return pa.array(normal(runs.to_pylist(), language), pa.string())
    others = pa.array(normal(runs.filter(pc.invert(number)).to_pylist(), language), pa.string())
    return pc.replace_with_mask(runs, pc.invert(number), others)
