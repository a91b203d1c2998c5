"""Feature hashing: each word votes, with signs, for four dimensions. Offline, deterministic, no model.

With one dimension a word, a text of a single word (a line of Base64, say) that shares its dimension with a word of a
question would be as near to it as a text that holds the word. That two words share all four is next to impossible.

All words of a batch are hashed at once, straight from Arrow's bytes, each different one once. With P[i] the sum over
j < i of code(byte j) · R^j (mod 2⁶⁴), the word at bytes [s, e) hashes to (P[e] - P[s]) · R^-s: a few numpy operations
per byte, and no Python object per word. A text takes about what looking its vector up would: hence no cache.
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

    from instep.arrow.words import Parted
    from instep.pipeline.documents.embed.embedder import Texts, Vectors

    Array = np.ndarray[Any, np.dtype[Any]]

#: Part of the fingerprint: raise it whenever any vector changes.
ALGORITHM = "hashing-2"
#: Bytes hashed at a time, and words and places whose votes are counted at a time: what is worked on stays in the
#: processor's cache.
_BLOCK = 1 << 16
_WORDS, _PLACES = 1 << 14, 1 << 17
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
        import pyarrow as pa

        from instep.arrow.words import runs_of

        array = _plain(texts if isinstance(texts, pa.Array) else pa.array(list(texts), pa.string()))
        return _vectors(array, runs_of(array), self.dimensions)

    def embed_runs(self, texts: pa.StringArray, runs: Parted) -> Vectors:
        """The same of texts whose runs are known."""
        import numpy as np
        import pyarrow.compute as pc

        vectors = _vectors(texts, runs, self.dimensions)
        # A run is a word, but for signs beyond ASCII that part words there.
        beyond: Any = pc.invert(pc.string_is_ascii(texts))
        if beyond.true_count:
            vectors[np.flatnonzero(beyond)] = self.embed(texts.filter(beyond))
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


def _vectors(texts: pa.StringArray, words: Parted, dimensions: int) -> Vectors:
    """Vectors of texts with these words."""
    import numpy as np

    vectors: Vectors = np.empty((len(texts), dimensions), np.float32)
    votes, first = _votes(words.runs, dimensions), 0
    while first < len(texts):
        last = int(np.searchsorted(words.bounds, words.bounds[first] + _WORDS, "right")) - 1
        last = min(max(last, first + 1), first + max(1, _PLACES // dimensions), len(texts))
        sums = _sums(votes, words.of(first, last), dimensions)
        norms = np.sqrt(np.einsum("ij,ij->i", sums, sums))
        for row in np.flatnonzero(norms == 0).tolist():
            place, sign = _whole(texts[first + row].as_py().encode(), dimensions)
            sums[row, place], norms[row] = sign, 1.0
        np.divide(sums, norms[:, None], out=vectors[first:last], casting="same_kind")
        first = last
    return vectors


def _votes(words: Any, dimensions: int) -> Array:
    """The dimension for which each word votes with each of its votes, and as many further on if it votes for it and not
    against it.
    """
    import numpy as np
    import pyarrow.compute as pc

    hashes = _hashes(words)
    votes = np.empty((len(hashes), len(_VOTES)), np.int64)
    for at, factor in enumerate(_VOTES):
        drawn = hashes * np.uint64(factor)
        drawn ^= drawn >> np.uint64(32)
        votes[:, at] = (drawn & np.uint64(0xFFFFFFFF)) * np.uint64(dimensions) >> np.uint64(32)
        votes[:, at] += (drawn >> np.uint64(63)).view(np.int64) * dimensions
    # What is no word votes for what it votes against.
    votes[pc.binary_length(words).to_numpy() == 0] = 0, 0, dimensions, dimensions
    return votes


def _hashes(words: pa.Array[Any]) -> Array:
    """A number of 64 bits for each word."""
    import numpy as np

    _, ends, data = (np.frombuffer(memoryview(part or b""), np.uint8) for part in words.buffers())
    bounds = ends.view(np.int32)[words.offset : words.offset + len(words) + 1]
    hashes, first = np.empty(len(words), np.uint64), 0
    while first < len(words):
        last = int(np.searchsorted(bounds, bounds[first] + _BLOCK, "right")) - 1
        last = min(max(last, first + 1), len(words))
        hashes[first:last] = _hashed(data[bounds[first] : bounds[last]], bounds[first : last + 1] - bounds[first])
        first = last
    return hashes


def _hashed(data: Array, bounds: Array) -> Array:
    import numpy as np

    powers, inverses = _powers(max(_BLOCK, 1 << max(0, len(data) - 1).bit_length()))
    prefix = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(_alphabet().take(data) * powers[: len(data)], out=prefix[1:])
    starts, ends = bounds[:-1], bounds[1:]
    hashes: Array = (prefix.take(ends) - prefix.take(starts)) * inverses.take(starts, mode="clip")
    hashes ^= hashes >> np.uint64(29)
    return hashes


def _sums(votes: Array, words: Parted, dimensions: int) -> Array:
    """float64, (texts, dimensions): for each text the signed votes of its words."""
    import numpy as np

    texts = len(words.bounds) - 1
    places = votes.take(words.indices, axis=0)
    places += np.repeat(np.arange(texts) * (2 * dimensions), np.diff(words.bounds))[:, None]
    counts = np.bincount(places.ravel(), minlength=texts * 2 * dimensions).reshape(texts, 2, dimensions)
    sums: Array = (counts[:, 1] - counts[:, 0]).astype(np.float64)
    return sums


def _whole(text: bytes, dimensions: int) -> tuple[int, float]:
    """Dimension and sign for a text without words."""
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return (number >> 1) % dimensions, 1.0 if number & 1 else -1.0


@functools.cache
def _alphabet() -> Array:
    """A random 64-bit code for each byte, the same for both cases; 0 for those of no word."""
    import numpy as np

    drawn = [int.from_bytes(hashlib.sha256(bytes([byte])).digest()[:8], "big") for byte in range(256)]
    member = [byte >= 128 or chr(byte).isalnum() or chr(byte) == "_" for byte in range(256)]
    folded = [ord(chr(byte).lower()) if byte < 128 else byte for byte in range(256)]
    return np.array([drawn[folded[byte]] if member[byte] else 0 for byte in range(256)], np.uint64)


@functools.lru_cache(maxsize=2)
def _powers(length: int) -> tuple[Array, Array]:
    """R^i and R^-i modulo 2⁶⁴, for i below `length`."""
    import numpy as np

    def powers(base: int) -> Array:
        factors = np.full(length, base, np.uint64)
        factors[0] = 1
        return np.cumprod(factors, dtype=np.uint64)

    return powers(_RADIX), powers(_RADIX_INVERSE)
