"""Texts parted at their spaces, or into runs of letters, for whole columns at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SPACE = ord(" ")

#: For each byte of a text in UTF-8: capitals are small, `_` and what is no ASCII stay, and all else is a space.
_RUNS = bytes(
    each if each >= 0x80 or chr(each) == "_" else (ord(chr(each).lower()) if chr(each).isalnum() else _SPACE)
    for each in range(256)
)


class Parted(NamedTuple):
    """The different `runs`; the number of the one at each place of all texts, one text behind the other; and the places
    where each text begins, and the last ends. A run may be there twice, and one of no characters stands for a space
    that has no run before it.
    """

    runs: pa.Array[Any]
    indices: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.int64]

    def of(self, start: int, stop: int) -> Parted:
        """Those of some of the texts."""
        bounds = self.bounds[start : stop + 1]
        return Parted(self.runs, self.indices[bounds[0] : bounds[-1]], bounds - bounds[0])


def runs_of(texts: Any) -> Parted:
    """The runs of letters, digits, `_` and all that is no ASCII, with small letters in place of capitals of ASCII. No
    text is null.
    """
    _, offsets, data = texts.buffers()
    small = pa.py_buffer(b"" if data is None else data.to_pybytes().translate(_RUNS))
    return parted(pa.StringArray.from_buffers(len(texts), offsets, small, offset=texts.offset))


def parted(texts: Any) -> Parted:
    """The runs of characters between the spaces of texts, none of which is null. No run is copied: each is looked up
    together with the space behind it, which only the different ones lose.
    """
    _, ends, data = texts.buffers()
    if not len(texts) or data is None:
        return Parted(pa.array([], pa.string()), np.zeros(0, np.int32), np.zeros(len(texts) + 1, np.int64))
    of_texts = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    first, last = of_texts[0], of_texts[-1]
    begins = np.zeros(last - first + 1, bool)
    begins[1:] = np.frombuffer(data, np.uint8)[first:last] == _SPACE
    begins[of_texts - first] = True
    places = np.flatnonzero(begins).astype(np.int32)
    bounds = np.searchsorted(places, of_texts - first)
    spaced: Any = pa.StringArray.from_buffers(len(places) - 1, pa.py_buffer(places + first), data)
    coded = spaced.dictionary_encode()
    return Parted(pc.ascii_rtrim(coded.dictionary, " "), coded.indices.to_numpy(), bounds)
