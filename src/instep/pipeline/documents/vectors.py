"""Vectors of texts: from the cache, from the embedder, checked; texts at fault are found by halving."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from instep.domain.money import Bill
from instep.pipeline.documents.embed.embedder import (
    Embedder,
    EmbedRejected,
    PaidEmbedder,
    RunEmbedder,
    WrongShape,
    check_vectors,
    demand_length,
    probe,
)

if TYPE_CHECKING:
    import numpy as np

    from instep.arrow.words import Parted
    from instep.pipeline.documents.embed.embedder import Vectors

    Array = np.ndarray[Any, np.dtype[Any]]


_log = logging.getLogger(__name__)

#: After so many commits the unindexed tail is indexed and small files are merged.
_TIDY_EVERY = 64
#: Hashes asked for in one lookup.
_LOOKUP = 1_000
#: Superseded files are kept this long for readers that still have them open.
_KEEP = timedelta(hours=1)


class EmbeddingCache:
    """A Lance dataset per model under `uri`, appended to by several tasks at once.

    Losing it costs money, never correctness: what cannot be read is rebuilt, and nothing here
    raises. The same hash may be stored twice; both vectors are the same.
    """

    def __init__(self, uri: str, fingerprint: str, dimensions: int) -> None:
        self._uri = f"{uri.rstrip('/')}/{fingerprint}.lance"
        self._local = None if "://" in self._uri else Path(self._uri)
        self._dimensions = dimensions
        self._writable = True
        self._schema = pa.schema({"chunk_hash": pa.string(), "vector": pa.list_(pa.float32(), dimensions)})

    @property
    def exists(self) -> bool:
        """Whether there may be some."""
        return self._local is None or self._local.exists()

    def get(self, hashes: pa.StringArray) -> tuple[Array, Vectors]:
        """Places in `hashes` (distinct) whose vector is known, and these vectors."""
        for again in (True, False):
            try:
                return self._found(hashes)
            except Exception as error:  # Whatever is wrong with it, it is only a cache.
                if not again:
                    _log.warning("embedding cache cannot be read and is rebuilt: %s", type(error).__name__)
                    self._rebuild()
        return self._nothing()

    def known(self, hashes: pa.StringArray) -> set[str]:
        """Select the hashes whose vector is known. Changes nothing, whatever is wrong with the cache."""
        try:
            dataset = self._open()
            if dataset is None:
                return set()
            tables = [dataset.to_table(columns=["chunk_hash"], filter=each) for each in _filters(hashes)]
            return {str(each) for table in tables for each in table["chunk_hash"].to_pylist()}
        except Exception:  # A run would rebuild it.
            return set()

    def put(self, hashes: pa.StringArray, vectors: Vectors) -> None:
        """Keep vectors. A place that cannot be written is not tried again: the cache is only a cache."""
        if not len(hashes) or not self._writable:
            return
        flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self._dimensions)
        rows = pa.Table.from_arrays([hashes, flat], schema=self._schema)
        for pause in (0.01, 0.05, 0.25, None):
            try:
                self._append(rows)
            except Exception as error:  # Another task was quicker, or something is wrong with it.
                if pause is None:
                    self._writable = False
                    _log.warning("embeddings were not cached: %s", type(error).__name__)
                else:
                    time.sleep(pause)
            else:
                break

    def _found(self, hashes: pa.StringArray) -> tuple[Array, Vectors]:
        import numpy as np
        import pyarrow.compute as pc

        dataset = self._open()
        if dataset is None:
            return self._nothing()
        found = pa.concat_tables([dataset.to_table(filter=each) for each in _filters(hashes)]).combine_chunks()
        places: Any = pc.index_in(found["chunk_hash"].combine_chunks(), value_set=hashes)
        once, first = np.unique(places.to_numpy(zero_copy_only=False).astype(np.int64), return_index=True)
        column: Any = found["vector"].combine_chunks()
        vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, self._dimensions)
        return once, vectors[first]

    def _nothing(self) -> tuple[Array, Vectors]:
        import numpy as np

        return np.zeros(0, np.int64), np.zeros((0, self._dimensions), np.float32)

    def _open(self) -> Any:
        """The dataset, or None when there is none yet."""
        if self._local is not None and not self._local.exists():
            return None
        import lance

        try:
            return lance.dataset(self._uri)
        except ValueError as error:
            if "not found" in str(error).lower():
                return None
            raise

    def _append(self, rows: pa.Table) -> None:
        import lance

        if self._open() is None:
            self._create()
        dataset = lance.write_dataset(rows, self._uri, mode="append")
        if dataset.version % _TIDY_EVERY == 0:
            self._tidy(dataset)

    def _create(self) -> None:
        """An empty dataset. Lance lets the last of several creators win, a folder the first."""
        import lance

        if self._local is None:
            lance.write_dataset(self._schema.empty_table(), self._uri, mode="create")
            return
        folder = self._local.parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            lance.write_dataset(self._schema.empty_table(), f"{made}/new.lance")
            with contextlib.suppress(OSError):
                Path(made, "new.lance").rename(self._local)

    def _tidy(self, dataset: Any) -> None:
        """Compact the cache. If another task does the same at the same time, one of them fails, which does no harm."""
        try:
            dataset.optimize.compact_files()
            if dataset.describe_indices():
                dataset.optimize.optimize_indices()
            else:
                dataset.create_scalar_index("chunk_hash", "BTREE")
            dataset.cleanup_old_versions(older_than=_KEEP)
        except Exception as error:  # The next one will do it.
            _log.info("embedding cache was not tidied: %s", type(error).__name__)

    def _rebuild(self) -> None:
        import lance

        try:
            lance.write_dataset(self._schema.empty_table(), self._uri, mode="overwrite")
        except Exception:  # Not even that: start from nothing, where that is possible.
            if self._local is not None:
                shutil.rmtree(self._local, ignore_errors=True)


def _filters(hashes: pa.StringArray) -> Iterator[str]:
    """Conditions that some of these hashes fulfil each."""
    for start in range(0, len(hashes), _LOOKUP):
        asked = "','".join(map(str, hashes[start : start + _LOOKUP].to_pylist()))
        yield f"chunk_hash IN ('{asked}')"


#: Vectors are put into the cache in portions of this many, so that a kill loses little.
_PORTION = 1_024


class Embedded(NamedTuple):
    """Vectors in the order of the texts; rows in `flaws` (row → reason) are no use.

    `computed` marks the rows whose vector the embedder was asked for.
    """

    vectors: Vectors
    flaws: dict[int, str]
    computed: Array


class _PartialVectors(NamedTuple):
    """Vectors of some texts, filled batch by batch, and usable after an error in a later one. `done` marks the rows
    that have a good vector, `flaws` those whose vector is no use (row → reason).
    """

    vectors: Vectors
    flaws: dict[int, str]
    done: Array

    @classmethod
    def empty(cls, texts: int, dimensions: int) -> _PartialVectors:
        import numpy as np

        return cls(np.zeros((texts, dimensions), np.float32), {}, np.zeros(texts, bool))


class Vectoriser:
    def __init__(self, embedder: Embedder, cache: EmbeddingCache | None = None) -> None:
        self._embedder = embedder
        self._cache = cache

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    @property
    def quick(self) -> bool:
        """Whether a vector costs no more than a look whether it is known would."""
        return not self._embedder.cached

    @property
    def by_runs(self) -> bool:
        """Whether it is quicker with the runs of texts at hand."""
        return self.quick and isinstance(self._embedder, RunEmbedder)

    @property
    def bill(self) -> Bill:
        """The bill so far."""
        return self._embedder.meter.bill if isinstance(self._embedder, PaidEmbedder) else Bill()

    def of(self, texts: pa.StringArray, hashes: pa.StringArray, runs: Parted | None = None) -> Embedded:
        """Vectors of texts with these hashes; where that is worth it, each distinct text is asked for once. `runs`:
        those of the texts, if they are known.
        """
        import numpy as np

        if not self._embedder.cached:
            made = _PartialVectors.empty(len(texts), self._embedder.dimensions)
            self._compute(texts, made, runs)
            return Embedded(made.vectors, made.flaws, np.ones(len(texts), bool))
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
        start = 0
        for size in self._portions(texts.take(rows)):
            portion = rows[start : start + size]
            start += size
            made = _PartialVectors.empty(len(portion), self._embedder.dimensions)
            try:
                self._compute(texts.take(portion), made)
            finally:  # Each batch may have been paid for: what is there is kept also when the next one fails.
                if self._cache is not None:
                    self._cache.put(hashes.take(portion[made.done]), made.vectors[made.done])
            vectors[portion] = made.vectors
            flaws.update((int(portion[row]), reason) for row, reason in made.flaws.items())
        return vectors, flaws, missing

    def _portions(self, texts: pa.StringArray) -> Iterable[int]:
        """The numbers of texts after which vectors are kept: those that are paid for after each request."""
        if isinstance(self._embedder, PaidEmbedder):
            return self._embedder.portions(texts)
        return (min(_PORTION, len(texts) - start) for start in range(0, len(texts), _PORTION))

    def _compute(self, texts: pa.StringArray, made: _PartialVectors, runs: Parted | None = None) -> None:
        """Embed all texts in batches, each into its place in `made`."""
        size = self._embedder.batch
        for start in range(0, len(texts), size):
            stop = min(start + size, len(texts))
            try:
                self._embed(texts, start, stop, made, runs)
            except EmbedRejected as error:
                # To look for the text at fault costs many requests: first, whether it is about the texts at all.
                probe(self._embedder)
                self._halved(texts, (start, stop), made, error)

    def _embed(
        self, texts: pa.StringArray, start: int, stop: int, made: _PartialVectors, runs: Parted | None = None
    ) -> None:
        if runs is not None and isinstance(self._embedder, RunEmbedder):
            given = self._embedder.embed_runs(texts[start:stop], runs.of(start, stop))
        else:
            given = self._embedder.embed(texts[start:stop])
        demand_length(given, stop - start, self._embedder.dimensions)
        bad = {start + row: reason for row, reason in check_vectors(given).items()}
        made.flaws.update(bad)
        made.vectors[start:stop] = given
        made.done[start:stop] = True
        made.done[list(bad)] = False

    def _halved(
        self, texts: pa.StringArray, place: tuple[int, int], made: _PartialVectors, rejected: EmbedRejected
    ) -> None:
        """Embed rejected texts in halves, until the texts at fault stand alone."""
        start, stop = place
        if stop - start == 1:
            made.flaws[start] = rejected.what if isinstance(rejected, WrongShape) else str(rejected)
            return
        middle = (start + stop) // 2
        for low, high in ((start, middle), (middle, stop)):
            try:
                self._embed(texts, low, high, made)
            except EmbedRejected as error:
                self._halved(texts, (low, high), made, error)
