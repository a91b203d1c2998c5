"""Percent-encoding of many texts at once, as URIs and the CSV files of inventories have it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.domain.identity import quoted

_PERCENT: Final = ord("%")
_DIGITS: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
#: Whether a byte stands in a URI as it is.
_PLAIN: Final = np.array([len(quoted(bytes([each]))) == 1 for each in range(256)])
#: The value of a hexadecimal digit; more than one can be for what is none.
_NONE: Final = 255
_VALUES: Final = np.full(256, _NONE, np.uint8)
for _place, _digit in enumerate(b"0123456789abcdef"):
    _VALUES[_digit] = _VALUES[ord(chr(_digit).upper())] = _place


def encoded(texts: pa.Array[Any]) -> Any:
    """Paths as they stand in URIs: see `domain.identity.quoted`."""
    offsets, data = _bytes_of(texts)
    kept = _PLAIN[data]
    if np.all(kept):
        return texts
    at = _ends(np.where(kept, 1, 3))
    found = np.empty(at[-1], np.uint8)
    found[at[:-1]] = np.where(kept, data, _PERCENT)
    codes, places = data[~kept], at[:-1][~kept]
    found[places + 1], found[places + 2] = _DIGITS[codes >> 4], _DIGITS[codes & 15]
    return _texts(at[offsets], found)


def decoded(texts: pa.Array[Any]) -> Any:
    """Texts as `urllib.parse.unquote_plus` has them. Raises `ValueError` for what is no such text, or is none in UTF-8
    then.
    """
    offsets, data = _bytes_of(texts)
    data = np.where(data == ord("+"), np.uint8(ord(" ")), data)
    at = np.flatnonzero(data == _PERCENT)
    if len(at):
        ends = offsets[np.searchsorted(offsets, at, side="right")]
        if np.any(at + 2 >= ends):
            raise ValueError("a percent sign without two digits")
        high, low = _VALUES[data[at + 1]], _VALUES[data[at + 2]]
        if np.any((high == _NONE) | (low == _NONE)):
            raise ValueError("a percent sign without two digits")
        data[at] = high << 4 | low
        kept = np.ones(len(data), bool)
        kept[at + 1] = kept[at + 2] = False
        offsets, data = _ends(kept)[offsets], data[kept]
    found = _texts(offsets, data)
    found.validate(full=True)
    return found


def _bytes_of(texts: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The bytes of texts one behind the other, and where each begins and the last one ends. None may be null."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    if data is None or not len(texts):
        return np.zeros(len(texts) + 1, np.int64), np.empty(0, np.uint8)
    return ends - ends[0], np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]


def _ends(widths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(widths, dtype=np.int64)])


def _texts(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Any:
    ends = np.ascontiguousarray(offsets, np.int32)
    return pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends.data), pa.py_buffer(data.tobytes()))
