"""Feature hashing: each word votes, with signs, for four dimensions. Offline, deterministic, no model.

With one dimension a word, a text of a single word (a line of Base64, say) that shares its dimension with a word of a
question would be as near to it as a text that holds the word. That two words share all four is next to impossible.

All words of a batch are hashed at once, straight from Arrow's bytes. With P[i] the sum over j < i of
code(byte j) · R^j (mod 2⁶⁴), the word at bytes [s, e) hashes to (P[e] - P[s]) · R^-s: one pass of a
few numpy operations per byte, and no Python object per word. 200,000 texts of 800 characters take
about a second on one core, about what looking their vectors up would cost: hence no cache.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.domain.fingerprint import digest

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from instep.pipeline.documents.embed.embedder import Texts, Vectors

    Array = np.ndarray[Any, np.dtype[Any]]

#: Part of the fingerprint: raise it whenever any vector changes.
ALGORITHM = "hashing-2"
#: Bytes hashed at a time: the working set stays in the processor's cache.
_BLOCK = 1 << 16
_RADIX = 0x9E3779B97F4A7C15
_RADIX_INVERSE = pow(_RADIX, -1, 1 << 64)
#: One odd factor for each vote of a word.
_VOTES = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)


@dataclass(frozen=True)
class HashingEmbedder:
    """Words are runs of letters, digits and `_`, whatever their case; vectors have length 1.

    A vector is never zero: a text without words (or whose words cancel out) is hashed as a whole.
    """

    dimensions: int = 384

    @property
    def fingerprint(self) -> str:
        return digest([ALGORITHM, self.dimensions])

    @property
    def cached(self) -> bool:
        return False

    @property
    def batch(self) -> int:
        return 8_192

    def embed(self, texts: Texts) -> Vectors:
        import numpy as np
        import pyarrow as pa

        array = _plain(texts if isinstance(texts, pa.Array) else pa.array(list(texts), pa.string()))
        _, ends, bytes_ = (np.frombuffer(memoryview(part or b""), np.uint8) for part in array.buffers())
        offsets = ends.view(np.int32)[array.offset : array.offset + len(array) + 1]
        vectors: Vectors = np.empty((len(array), self.dimensions), np.float32)
        first = 0
        while first < len(array):
            last = int(np.searchsorted(offsets, offsets[first] + _BLOCK, "right")) - 1
            last = min(max(last, first + 1), len(array))
            bounds = offsets[first : last + 1]
            sums = _sums(bytes_[bounds[0] : bounds[-1]], bounds - bounds[0], self.dimensions)
            norms = np.sqrt(np.einsum("ij,ij->i", sums, sums))
            for row in np.flatnonzero(norms == 0):
                place, sign = _whole(bytes_[bounds[row] : bounds[row + 1]].tobytes(), self.dimensions)
                sums[row, place], norms[row] = sign, 1.0
            np.divide(sums, norms[:, None], out=vectors[first:last], casting="same_kind")
            first = last
        return vectors


def _plain(texts: pa.StringArray) -> pa.StringArray:
    """Texts in which a byte from 128 up is always part of a letter or digit, in lower case."""
    import pyarrow.compute as pc

    beyond = pc.invert(pc.string_is_ascii(texts))
    if not pc.any(beyond).as_py():
        return texts
    words = pc.replace_substring_regex(texts.filter(beyond), pattern=r"[^\pL\pN\pM_]+", replacement=" ")
    plain: pa.StringArray = pc.replace_with_mask(texts, beyond, pc.utf8_lower(words))
    return plain


def _sums(data: Array, bounds: Array, dimensions: int) -> Array:
    """float64, (texts, dimensions): for each text the signed votes of its words."""
    import numpy as np

    codes, word_bytes = _alphabet()
    powers, inverses = _powers(max(_BLOCK, 1 << max(0, len(data) - 1).bit_length()))
    texts = len(bounds) - 1
    word = word_bytes.take(data)
    # A word starts where the byte before is not of a word or belongs to another text, and ends alike.
    before, after = np.zeros(len(data), bool), np.zeros(len(data), bool)
    before[1:], after[:-1] = word[:-1], word[1:]
    edges = bounds[(bounds > 0) & (bounds < len(data))]
    before[edges], after[edges - 1] = False, False
    starts, ends = np.flatnonzero(word > before), np.flatnonzero(word > after) + 1
    prefix = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(codes.take(data) * powers[: len(data)], out=prefix[1:])
    hashes = (prefix.take(ends) - prefix.take(starts)) * inverses.take(starts)
    hashes ^= hashes >> np.uint64(29)
    words = np.diff(np.searchsorted(starts, bounds))
    rows = np.repeat(np.arange(texts) * dimensions, words)
    sums = np.zeros(texts * dimensions)
    for factor in _VOTES:
        drawn = hashes * np.uint64(factor)
        drawn ^= drawn >> np.uint64(32)
        places = ((drawn & np.uint64(0xFFFFFFFF)) * np.uint64(dimensions) >> np.uint64(32)).view(np.int64)
        # The first bit is the sign of a float, too: a vote counts where it is set, and counts against where it is not.
        sums -= np.bincount(places + rows, np.copysign(1.0, drawn.view(np.float64)), texts * dimensions)
    return sums.reshape(texts, dimensions)


def _whole(text: bytes, dimensions: int) -> tuple[int, float]:
    """Dimension and sign for a text without words."""
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return (number >> 1) % dimensions, 1.0 if number & 1 else -1.0


@functools.cache
def _alphabet() -> tuple[Array, Array]:
    """A random 64-bit code for each byte, the same for both cases, and which bytes words are made of."""
    import numpy as np

    drawn = [int.from_bytes(hashlib.sha256(bytes([byte])).digest()[:8], "big") for byte in range(256)]
    member = [byte >= 128 or chr(byte).isalnum() or chr(byte) == "_" for byte in range(256)]
    folded = [ord(chr(byte).lower()) if byte < 128 else byte for byte in range(256)]
    codes = [drawn[folded[byte]] if member[byte] else 0 for byte in range(256)]
    return np.array(codes, np.uint64), np.array(member, bool)


@functools.lru_cache(maxsize=2)
def _powers(length: int) -> tuple[Array, Array]:
    """R^i and R^-i modulo 2⁶⁴, for i below `length`."""
    import numpy as np

    def powers(base: int) -> Array:
        factors = np.full(length, base, np.uint64)
        factors[0] = 1
        return np.cumprod(factors, dtype=np.uint64)

    return powers(_RADIX), powers(_RADIX_INVERSE)
