"""Vectors as answers of endpoints have them: lists of numbers, or 32-bit floats in base64."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from instep.pipeline.documents.embed.embedder import EmbedRejected, wrong_length

if TYPE_CHECKING:
    import numpy as np

#: Bytes of an answer beside its vectors and its texts; of a number in a vector; and of a byte of a text, which some
#: send back: a letter may be written as `\\u00e9`.
_AROUND: Final = 1_000_000
_NUMBER: Final = 64
_BYTE: Final = 6


def most_bytes(texts: Sequence[str], dimensions: int) -> int:
    """The size of the largest answer that has a vector of this length for each of these texts."""
    return _AROUND + _NUMBER * dimensions * len(texts) + _BYTE * sum(len(each.encode()) for each in texts)


def vector_of(values: Any, dimensions: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The vector that an answer has. Raises `EmbedRejected` if it is none, `WrongShape` if it has another length."""
    import numpy as np

    if values and isinstance(values, str):
        vector = _from_base64(values)
    elif not isinstance(values, list):
        raise EmbedRejected("the embedder gave no vector for it")
    elif len(values) != dimensions:
        raise wrong_length(len(values), dimensions)
    elif not {int, float, type(None)}.issuperset(map(type, values)):
        raise _not_numbers()
    else:
        try:
            with np.errstate(over="ignore"):
                vector = np.array([np.nan if value is None else value for value in values], np.float32)
        except OverflowError:
            raise _not_numbers() from None
    if len(vector) != dimensions:
        raise wrong_length(len(vector), dimensions)
    return vector


def _from_base64(text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    import numpy as np

    try:
        return np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32)
    except ValueError:
        raise EmbedRejected("the embedder gave no vector for it") from None


def _not_numbers() -> EmbedRejected:
    return EmbedRejected("the embedder's vector has something in it that is not a number")
