"""Words of texts as PostgreSQL has them in a `tsvector`: each different one once, in the order of their bytes, with its
places. COPY reads it in binary, so that the server neither takes texts apart nor puts words in order.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

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

Numbers: TypeAlias = npt.NDArray[Any]


def tsvectors(texts: Any) -> pa.Array[Any]:
    """The words of each text, as bytes that PostgreSQL reads."""
    if len(texts) and pc.max(pc.binary_length(texts)).as_py() > MOST_WORDS:
        texts = pc.utf8_slice_codeunits(texts, 0, MOST_WORDS)
    found = parted(texts)
    once: Any = found.runs.cast(pa.binary()).dictionary_encode()
    order: Any = pc.sort_indices(once.dictionary)
    lexemes: Any = once.dictionary.take(order)
    ranks = np.empty(len(lexemes), np.int64)
    ranks[order.to_numpy()] = np.arange(len(lexemes))
    counts = np.diff(found.bounds)
    # A word in one number, behind its row and before its place: so one sort puts all in order.
    words = ranks[once.indices.to_numpy()].take(found.indices) << _PLACE_BITS
    places = np.arange(1, len(words) + 1)
    places -= np.repeat(found.bounds[:-1], counts)
    words |= np.minimum(places, _LAST_PLACE, out=places)
    row_bits = _PLACE_BITS + len(lexemes).bit_length()
    words |= np.repeat(np.arange(len(counts)) << row_bits, counts)
    if len(lexemes) and not len(lexemes[0].as_py()):
        # A text without words has an empty one, which is none.
        words = words[words >> _PLACE_BITS & (1 << row_bits - _PLACE_BITS) - 1 > 0]
    words.sort()
    return _written(words, lexemes, row_bits, len(counts))


def _written(words: Numbers, lexemes: Any, row_bits: int, rows: int) -> pa.Array[Any]:
    """The number of different words of each row; of each word its bytes, a NUL, the number of its places and these."""
    # Words behind the last place may be there twice.
    words = words[_firsts(words)]
    first = np.flatnonzero(_firsts(words >> _PLACE_BITS))
    number = np.diff(first, append=len(words))
    if len(number) and number.max() > _PLACES:
        words = words[np.arange(len(words)) - np.repeat(first, number) < _PLACES]
        number = np.minimum(number, _PLACES)
        first = np.cumsum(number) - number
    entries = words.take(first)
    places = _binary(np.append(first, len(words)) * 2, (words & _LAST_PLACE).astype(">u2"))
    of_lexeme = entries >> _PLACE_BITS & (1 << row_bits - _PLACE_BITS) - 1
    nothing: Any = pa.scalar(b"")
    ended: Any = pc.binary_join_element_wise(lexemes, nothing, pa.scalar(b"\0"))
    numbers = _binary(np.arange(len(first) + 1) * 2, number.astype(">u2"))
    joined: Any = pc.binary_join_element_wise(ended.take(pa.array(of_lexeme)), numbers, places, nothing)
    # The words of a row lie side by side.
    _, ends, data = joined.buffers()
    of_rows = np.searchsorted(entries, np.arange(rows + 1) << row_bits)
    bounds = np.frombuffer(ends, np.int32).take(of_rows)
    heads = _binary(np.arange(rows + 1) * 4, np.diff(of_rows).astype(">i4"))
    found: pa.Array[Any] = pc.binary_join_element_wise(heads, _binary(bounds, data), nothing)
    return found


def _firsts(values: Numbers) -> npt.NDArray[np.bool_]:
    """Whether each is another than the one before."""
    other = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=other[1:])
    return other


def _binary(ends: Numbers, data: Any) -> pa.Array[Any]:
    """Bytes that end at these places."""
    offsets = pa.py_buffer(ends.astype(np.int32).data)
    return pa.BinaryArray.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(data)])
