"""The embedding cache: several writers at once, upkeep, damage."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from instep.domain.identity import content_hash
from instep.errors import Transient, UserError
from instep.pipeline.documents.embed.meter import Meter
from instep.pipeline.documents.vectors import EmbeddingCache, Vectoriser

Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]


def hashes(start: int, stop: int) -> pa.StringArray:
    return pa.array([content_hash(b"%d" % number) for number in range(start, stop)], pa.string())


def vectors(start: int, stop: int) -> Vectors:
    return np.repeat(np.arange(start, stop, dtype=np.float32)[:, None], 4, axis=1)


def put_all(uri: str, worker: int) -> None:
    cache = EmbeddingCache(uri, "model", 4)
    for start in range(worker * 100, worker * 100 + 100, 10):
        cache.put(hashes(start, start + 10), vectors(start, start + 10))


def test_the_cache_returns_stored_vectors_and_names_its_place(tmp_path: Path) -> None:
    cache = EmbeddingCache(str(tmp_path / "deep/er"), "model", 4)
    assert len(cache.get(hashes(0, 5))[0]) == 0
    cache.put(hashes(3, 6), vectors(3, 6))
    places, found = cache.get(hashes(0, 5))
    assert places.tolist() == [3, 4]
    assert found.tolist() == [[3.0] * 4, [4.0] * 4]
    assert len(EmbeddingCache(str(tmp_path / "deep/er"), "other", 4).get(hashes(0, 5))[0]) == 0
    assert len(cache.get(hashes(0, 0))[0]) == 0


def test_the_same_text_put_twice_is_found_once(tmp_path: Path) -> None:
    cache = EmbeddingCache(str(tmp_path), "model", 4)
    for _ in range(2):
        cache.put(hashes(0, 3), vectors(0, 3))
    places, found = cache.get(hashes(0, 3))
    assert places.tolist() == [0, 1, 2]
    assert found[:, 0].tolist() == [0, 1, 2]


def test_processes_that_start_it_together_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=put_all, args=(str(tmp_path), worker)) for worker in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    places, found = EmbeddingCache(str(tmp_path), "model", 4).get(hashes(0, 300))
    assert places.tolist() == list(range(300))
    assert found[:, 0].tolist() == list(range(300))


def test_many_small_puts_are_merged_and_indexed(tmp_path: Path) -> None:
    cache = EmbeddingCache(str(tmp_path), "model", 4)
    for start in range(0, 140):
        cache.put(hashes(start, start + 1), vectors(start, start + 1))
    dataset = lance.dataset(str(tmp_path / "model.lance"))
    assert len(dataset.get_fragments()) < 70
    assert len(dataset.describe_indices()) == 1
    assert cache.get(hashes(0, 140))[0].tolist() == list(range(140))


@pytest.mark.parametrize("part", ["data", "_versions"])
def test_a_damaged_cache_is_rebuilt(tmp_path: Path, part: str, caplog: pytest.LogCaptureFixture) -> None:
    cache = EmbeddingCache(str(tmp_path), "model", 4)
    cache.put(hashes(0, 5), vectors(0, 5))
    for file in (tmp_path / "model.lance" / part).iterdir():
        file.write_bytes(b"junk")
    with caplog.at_level(logging.WARNING):
        assert len(cache.get(hashes(0, 5))[0]) == 0
    assert "rebuilt" in caplog.text
    cache.put(hashes(0, 5), vectors(0, 5))
    assert cache.get(hashes(0, 5))[0].tolist() == [0, 1, 2, 3, 4]


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = EmbeddingCache(str(tmp_path / "file"), "model", 4)
    with caplog.at_level(logging.WARNING):
        cache.put(hashes(0, 2), vectors(0, 2))
        assert len(cache.get(hashes(0, 2))[0]) == 0
    assert "not cached" in caplog.text


class _FailsAfter:
    """An embedder that counts the texts it gave vectors of, and raises an error after some batches."""

    dimensions = 4
    batch = 10
    cached = True
    fingerprint = "model"
    bad: frozenset[str] = frozenset()

    def __init__(self, batches: int, error: type[BaseException] = Transient) -> None:
        self.left = batches
        self.error = error
        self.paid: list[str] = []

    def embed(self, texts: pa.StringArray | Sequence[str]) -> Vectors:
        if not self.left:
            raise self.error("no more vectors")
        self.left -= 1
        asked = [str(each) for each in texts]
        self.paid += asked
        return np.array([[np.nan if each in self.bad else float(each) + 1] * 4 for each in asked], np.float32)


@pytest.mark.parametrize("error", [Transient, UserError, KeyboardInterrupt])
def test_vectors_paid_before_an_error_are_not_paid_again(tmp_path: Path, error: type[BaseException]) -> None:
    texts = pa.array(list(map(str, range(60))), pa.string())
    cache = EmbeddingCache(str(tmp_path), "model", 4)
    before, after = _FailsAfter(batches=4, error=error), _FailsAfter(batches=2)
    with pytest.raises(error):
        Vectoriser(before, cache).of(texts, hashes(0, 60))
    found = Vectoriser(after, cache).of(texts, hashes(0, 60))
    assert found.vectors[:, 0].tolist() == [number + 1.0 for number in range(60)]
    assert sorted(map(int, before.paid + after.paid)) == list(range(60))
    assert found.computed.tolist() == [False] * 40 + [True] * 20


def test_a_vector_of_no_use_is_not_kept_with_those_before_an_outage(tmp_path: Path) -> None:
    texts = pa.array(list(map(str, range(30))), pa.string())
    cache = EmbeddingCache(str(tmp_path), "model", 4)
    before = _FailsAfter(batches=2)
    before.bad = frozenset({"7"})
    with pytest.raises(Transient):
        Vectoriser(before, cache).of(texts, hashes(0, 30))
    kept, _ = cache.get(hashes(0, 30))
    assert kept.tolist() == [number for number in range(20) if number != 7]


class _Paid(_FailsAfter):
    """Costs money, and sees at each request how many vectors are kept."""

    meter = Meter()

    def __init__(self, cache: EmbeddingCache) -> None:
        super().__init__(batches=99)
        self._cache = cache
        self.kept: list[int] = []

    def metered(self, meter: Meter) -> _Paid:
        return self

    def portions(self, texts: pa.StringArray | Sequence[str]) -> Iterator[int]:
        return (min(self.batch, len(texts) - start) for start in range(0, len(texts), self.batch))

    def embed(self, texts: pa.StringArray | Sequence[str]) -> Vectors:
        self.kept.append(len(self._cache.known(hashes(0, 60))))
        return super().embed(texts)


def test_what_a_request_has_cost_is_kept_before_the_next_one(tmp_path: Path) -> None:
    """A kill pays again for the requests alone that are under way."""
    cache = EmbeddingCache(str(tmp_path), "model", 4)
    paid = _Paid(cache)
    Vectoriser(paid, cache).of(pa.array(list(map(str, range(60))), pa.string()), hashes(0, 60))
    assert paid.kept == [0, 10, 20, 30, 40, 50]
