"""Words of texts as PostgreSQL has them in a `tsvector`: each different one once, in the order of their bytes, with its
places. COPY reads it in binary, so that the server neither takes texts apart nor puts words in order.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.words import parted

#: Characters of a row's words: with their places, more does not fit into a tsvector.
MOST_WORDS: Final = 150_000
#: Words behind this one have its place, and of one word no more places than these are known.
_LAST_PLACE, _PLACES = 16_383, 256
_PLACE_BITS: Final = 14

#: Few words are numbers of half the size, which are sorted in half the time.
_FEW: Final = 1 << 31 - _PLACE_BITS

Numbers: TypeAlias = npt.NDArray[Any]


def tsvectors(texts: Any) -> pa.Array[Any]:
    """For each text its words, as bytes that PostgreSQL reads."""
    if len(texts) and pc.max(pc.binary_length(texts)).as_py() > MOST_WORDS:
        texts = pc.utf8_slice_codeunits(texts, 0, MOST_WORDS)
    found = parted(texts)
    starts, counts = found.bounds[:-1], np.diff(found.bounds)
    once: Any = found.runs.cast(pa.binary()).dictionary_encode()
    lexemes: Any = once.dictionary
    order: Any = pc.sort_indices(lexemes)
    lexemes = lexemes.take(order)
    kind = np.int32 if len(lexemes) < _FEW else np.int64
    ranks = np.empty(len(lexemes), kind)
    ranks[order.to_numpy()] = np.arange(len(lexemes)) << _PLACE_BITS
    words = ranks[once.indices.to_numpy()][found.indices]
    places = np.arange(1, len(words) + 1, dtype=np.int32) - np.repeat(starts.astype(np.int32), counts)
    words |= np.minimum(places, _LAST_PLACE, out=places)
    _sort_each(words, starts, counts)
    rows = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return _written(_entries(words, rows), lexemes, len(counts))


def _sort_each(values: Numbers, starts: Numbers, counts: Numbers) -> None:
    """Sort the values of each row. Rows of about one length are sorted together: many short sorts are quick."""
    widths = np.where(counts > 1, 1 << np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64), 0)
    for width in np.unique(widths[widths > 0]).tolist():
        some = np.flatnonzero(widths == width)
        at = np.arange(width)
        there = at < counts[some, None]
        places = (starts[some, None] + at)[there]
        table = np.full(there.shape, np.iinfo(values.dtype).max, values.dtype)
        table[there] = values[places]
        table.sort(axis=1)
        values[places] = table[there]


class _Entries(NamedTuple):
    """The different words of all rows: the row and the lexeme of each, and the places that it has there."""

    row: Numbers
    lexeme: Numbers
    number: Numbers
    places: Numbers


def _entries(words: Numbers, rows: Numbers) -> _Entries:
    other = rows[1:] != rows[:-1]
    # Words behind the last place may be there twice.
    once = np.append(True, other | (words[1:] != words[:-1]))[: len(words)]
    if not once.all():
        words, rows = words[once], rows[once]
        other = rows[1:] != rows[:-1]
    of = words >> _PLACE_BITS
    first = np.flatnonzero(np.append(True, other | (of[1:] != of[:-1]))[: len(words)])
    number = np.diff(first, append=len(words))
    places = words & (1 << _PLACE_BITS) - 1
    if len(number) and number.max() > _PLACES:
        places = places[np.arange(len(words)) - np.repeat(first, number) < _PLACES]
    return _Entries(rows[first], of[first], np.minimum(number, _PLACES), places)


def _written(found: _Entries, lexemes: Any, rows: int) -> pa.Array[Any]:
    """The number of words; and of each its bytes, a NUL, the number of its places and these."""
    # A text without words has an empty one, which is none.
    if len(lexemes) and not len(lexemes[0].as_py()):
        there = found.lexeme > 0
        kept = np.repeat(there, found.number)
        found = _Entries(found.row[there], found.lexeme[there], found.number[there], found.places[kept])
    sizes: Any = pc.binary_length(lexemes)
    length = sizes.to_numpy().astype(np.int64)[found.lexeme]
    size = length + 3 + 2 * found.number
    entries = np.bincount(found.row, minlength=rows)
    ends = np.cumsum(4 + np.bincount(found.row, size, rows).astype(np.int64))
    data = np.zeros(int(ends[-1]) if rows else 0, np.uint8)
    _put(data, np.append(0, ends[:-1])[:rows], entries, 4)
    at = np.cumsum(size) - size + 4 * (found.row.astype(np.int64) + 1)
    texts: Any = lexemes.take(pa.array(found.lexeme))
    data[_behind(at, length)] = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[: length.sum()]
    _put(data, at + length + 1, found.number, 2)
    _put(data, _behind(at + length + 3, found.number, 2), found.places, 2)
    offsets = np.append(0, ends).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)])


def _behind(starts: Numbers, counts: Numbers, step: int = 1) -> Numbers:
    """So many places from each start on."""
    ends = np.cumsum(counts)
    behind = np.repeat((starts - step * (ends - counts)).astype(np.int32), counts)
    behind += np.arange(0, step * len(behind), step, dtype=np.int32)
    return behind


def _put(data: npt.NDArray[np.uint8], at: Numbers, numbers: Numbers, width: int) -> None:
    """Numbers of so many bytes."""
    for byte in range(width):
        data[at + byte] = numbers >> 8 * (width - 1 - byte) & 255
