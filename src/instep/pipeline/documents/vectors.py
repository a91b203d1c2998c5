"""Vectors of texts: from the cache, from the embedder, checked; texts at fault are found by halving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from instep.pipeline.documents.embed.embedder import Embedder, EmbedRejected, check_vectors, demand_length, probe

if TYPE_CHECKING:
    import numpy as np

    from instep.pipeline.documents.cache import EmbeddingCache
    from instep.pipeline.documents.embed.embedder import Vectors

    Array = np.ndarray[Any, np.dtype[Any]]

#: Vectors are put into the cache in portions of this many, so that an outage loses little.
_PORTION = 1_024


class Embedded(NamedTuple):
    """Vectors in the order of the texts; rows in `flaws` (row → reason) are no use.

    `computed` marks the rows whose vector the embedder was asked for.
    """

    vectors: Vectors
    flaws: dict[int, str]
    computed: Array


class Vectoriser:
    def __init__(self, embedder: Embedder, cache: EmbeddingCache | None = None) -> None:
        self._embedder = embedder
        self._cache = cache

    def of(self, texts: pa.StringArray, hashes: pa.StringArray) -> Embedded:
        """Vectors of texts with these hashes; where that is worth it, each distinct text is asked for once."""
        import numpy as np

        if not self._embedder.cached:
            vectors, flaws = self._computed(texts)
            return Embedded(vectors, flaws, np.ones(len(texts), bool))
        coded: Any = hashes.dictionary_encode()
        places = coded.indices.to_numpy(zero_copy_only=False)
        _, first = np.unique(places, return_index=True)
        vectors, flaws, computed = self._looked_up(texts.take(first), coded.dictionary)
        spread = np.zeros(len(texts), bool)
        spread[first[computed]] = True
        all_flaws = {row: flaws[place] for row, place in enumerate(places.tolist()) if place in flaws} if flaws else {}
        return Embedded(vectors[places], all_flaws, spread)

    def _looked_up(self, texts: pa.StringArray, hashes: pa.StringArray) -> tuple[Vectors, dict[int, str], Array]:
        import numpy as np

        vectors = np.zeros((len(texts), self._embedder.dimensions), np.float32)
        missing = np.ones(len(texts), bool)
        if self._cache is not None and len(texts):
            found, known = self._cache.get(hashes)
            good = np.ones(len(found), bool)
            good[list(check_vectors(known))] = False
            vectors[found[good]] = known[good]
            missing[found[good]] = False
        flaws: dict[int, str] = {}
        rows = np.flatnonzero(missing)
        for start in range(0, len(rows), _PORTION):
            portion = rows[start : start + _PORTION]
            vectors[portion], bad = self._computed(texts.take(portion))
            flaws.update((int(portion[row]), reason) for row, reason in bad.items())
            if self._cache is not None:
                kept = np.delete(portion, list(bad))
                self._cache.put(hashes.take(kept), vectors[kept])
        return vectors, flaws, missing

    def _computed(self, texts: pa.StringArray) -> tuple[Vectors, dict[int, str]]:
        import numpy as np

        vectors = np.zeros((len(texts), self._embedder.dimensions), np.float32)
        flaws: dict[int, str] = {}
        size = self._embedder.batch
        for start in range(0, len(texts), size):
            stop = min(start + size, len(texts))
            try:
                self._embed(texts, start, stop, vectors, flaws)
            except EmbedRejected as error:
                # To look for the text at fault costs many requests: first, whether it is about the texts at all.
                probe(self._embedder)
                self._halved(texts, (start, stop), vectors, flaws, error)
        return vectors, flaws

    def _embed(self, texts: pa.StringArray, start: int, stop: int, vectors: Vectors, flaws: dict[int, str]) -> None:
        made = self._embedder.embed(texts[start:stop])
        demand_length(made, stop - start, self._embedder.dimensions)
        flaws.update((start + row, reason) for row, reason in check_vectors(made).items())
        vectors[start:stop] = made

    def _halved(
        self,
        texts: pa.StringArray,
        place: tuple[int, int],
        vectors: Vectors,
        flaws: dict[int, str],
        rejected: EmbedRejected,
    ) -> None:
        """Embed rejected texts in halves, until the texts at fault stand alone."""
        start, stop = place
        if stop - start == 1:
            flaws[start] = str(rejected)
            return
        middle = (start + stop) // 2
        for low, high in ((start, middle), (middle, stop)):
            try:
                self._embed(texts, low, high, vectors, flaws)
            except EmbedRejected as error:
                self._halved(texts, (low, high), vectors, flaws, error)
