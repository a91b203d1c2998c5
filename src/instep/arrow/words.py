"""Texts parted at their spaces, for whole columns at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SPACE = ord(" ")


class Parted(NamedTuple):
    """The different `runs`; the number of the one at each place of all texts, one text behind the other; and the places
    where each text begins, and the last ends. A run may be there twice, and one of no characters stands for a space
    that has no run before it.
    """

    runs: pa.Array[Any]
    indices: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.int64]


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
