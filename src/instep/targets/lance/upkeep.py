"""Keeping an index quick: scalar, full-text and vector indexes, compaction, old versions.

Cost follows the change. New fragments are searched without an index until there are enough of them to be worth a
*delta* (an index of their own). Deltas are merged like the digits of a binary counter, so there are never more than a
logarithm of them and each row is merged a logarithm of times; segments of the text index stay below a size. Fragments
are compacted before they are indexed where possible: then no index has to be rewritten for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heapreplace
from typing import TYPE_CHECKING, Any

from instep.domain.words import LONGEST
from instep.targets.document_target import SEARCHED, declared_fields
from instep.targets.lance.commits import State
from instep.targets.lance.location import Location, Preempted

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that may wait without an index. Measured on 2 cores: searching 1,000 such rows takes 20 ms,
#: indexing them 60 ms.
TAIL_ROWS = 5_000

#: Fragments that may wait without an index before they are compacted.
TAIL_FRAGMENTS = 16

#: Beside those, a dataset may hold one fragment for so many rows, and so many at most, before it
#: counts as crowded: every commit lists them all.
_ROWS_PER_FRAGMENT = 2_000
_MOST_FRAGMENTS = 512

#: Share of deleted rows at which fragments are rewritten. A rewrite costs as much as writing the
#: fragment and its part of the indexes again, so not for less.
_DEAD_SHARE = 0.33

#: Fragments this large are left alone unless many of their rows are deleted.
_LARGE = 50_000

#: From here on an approximate index of the vectors pays. Measured on 2 cores with 200,000 vectors of
#: 384 dimensions: a flat scan takes 0.22 s (0.7 s cold), through IVF-SQ 0.02 s (0.08 s cold) after
#: 4 s of building (IVF-PQ: 50 s). With 1,150,000 rows building takes 25 s: only `refine` does it.
ANN_ROWS = 250_000

#: From here on upkeep may take hundreds of megabytes: Lance builds indexes in memory, and opens those that it adds to.
#: Measured with 10,000,000 rows: 2.1 GB for the first indexes, and 480 MB to add 10,000 rows to them.
HEAVY_ROWS = 1_000_000

#: Vectors of which each centroid is learned. Measured with 1,000,000 vectors of 64 dimensions, and 300,000 of 384: with
#: Lance's own 256 the same neighbours are found (0.91 and 0.97 of ten), and the first take 2.8 s to build, not 1.7 s.
_SAMPLE = 64

#: A first text index is built in segments of at least so many rows, side by side. Measured on 2 cores
#: with 230,000 rows: one segment takes 6.4 s, two at once 3.3 s.
_SEGMENT_ROWS = 25_000
_AT_ONCE = 4

#: Rows of a segment of the text index at most, or a share of all: it is made and merged in memory. Measured with
#: 3,000,000 rows, two segments at a time on 2 cores: of two in all, Lance takes 514 MB and 22.9 s, of six 293 MB and
#: 19.3 s, and a search takes no longer.
_MOST_ROWS = 1_000_000
_MOST_SHARE = 1 / 32

#: So many versions, and those of the last ten seconds, stay for readers that have opened one; all others that nobody
#: needs go, or a thousand small runs would leave thousands of files for as long as old versions stay.
_VERSIONS = 50
_RECENT_SECONDS = 10.0

#: After so many versions old ones are looked for: looking at them costs time for each.
_NEW_VERSIONS = 25

#: A partition is idle when it wrote nothing for so many times as long as old versions stay.
_IDLE = 24

#: Words are what stands between spaces (`domain.words` has made them). No positions: they cost half as much again, and
#: a phrase is found without them.
_TEXT_OPTIONS: dict[str, Any] = {
    "base_tokenizer": "whitespace",
    "lower_case": False,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": 8 * LONGEST,
    "with_position": False,
}

_KEY, _CHUNK, _VECTOR = "document_id_idx", "chunk_id_idx", "vector_idx"
_INDEX = "_idx"

#: The index of words.
_WORDS = f"{SEARCHED}_idx"


@dataclass(frozen=True, slots=True)
class Segment:
    """A delta of an index: the fragments it covers."""

    fragments: frozenset[int]


def trailing_merge(sizes: Sequence[int], tail: int, most: float = math.inf) -> int:
    """The number of the newest segments (`sizes`, oldest first, in rows) that a new one of `tail` rows merges: as long
    as the next older one is not larger (by more than a quarter: changes of about the same size should count as the
    same) than
    """
    total, count = tail, 0
    for size in reversed(sizes):
        if 4 * size > 5 * total or total + size > most:
            break
        total += size
        count += 1
    return count


def declare(place: Location, physical: str) -> None:
    """Make the indexes without content, so that text is split into words in the same way (stems,
    accents) before anything is indexed and for rows that are not indexed yet.
    """
    dataset = place.open(physical)
    try:
        with place.understood():
            _build(dataset, _KEY, train=False)
            _build(dataset, _WORDS, train=False)
    except Preempted:
        pass  # another process makes them


def maintain(place: Location, physical: str, *, full: bool, keep_seconds: float) -> None:
    """See `DocumentTarget.maintain`."""
    _do(place, physical, (_compact_tail, _index, _compact_rest), full=full, keep_seconds=keep_seconds)


def maintain_table(place: Location, physical: str, *, full: bool, keep_seconds: float) -> None:
    """The same for a table without indexes."""
    _do(place, physical, (_compact_rest,), full=full, keep_seconds=keep_seconds)


def _do(
    place: Location, physical: str, steps: Sequence[Callable[[Any, bool], bool]], *, full: bool, keep_seconds: float
) -> None:
    """A step that meets a concurrent commit is left to the next time."""
    dataset = place.open(physical)
    began = dataset.version
    for step in steps:
        try:
            with place.understood():
                changed = dataset.count_rows() > 0 and step(dataset, full)
        except Preempted:
            changed = True
        if changed:
            dataset = place.open(physical)
    if full or dataset.version != began or _many_versions(dataset):
        with place.understood():
            _drop_old_versions(dataset, keep_seconds)


def unindexed_rows(dataset: Any) -> int:
    """The rows that the index of documents does not cover: all, until the first build has ended."""
    covered = _covered(_segments(dataset).get(_KEY, []))
    return sum(rows for number, (rows, _) in _sizes(dataset).items() if number not in covered)


def heavy(place: Location, physical: str) -> bool:
    """See `document_target.Heavy`."""
    with place.understood():
        return bool(place.open(physical).count_rows() >= HEAVY_ROWS)


def refinable(place: Location, physical: str) -> bool:
    """See `DocumentTarget.refinable`."""
    dataset = place.open(physical)
    return dataset.count_rows() >= ANN_ROWS and _VECTOR not in _segments(dataset)


def refine(place: Location, physical: str) -> None:
    """See `DocumentTarget.refine`."""
    if not refinable(place, physical):
        return
    dataset = place.open(physical)
    try:
        with place.understood():
            # Scalar quantisation takes vectors of any length.
            dataset.create_index("vector", "IVF_SQ", name=_VECTOR, metric="cosine", sample_rate=_SAMPLE)
    except Preempted:
        pass  # Left to the next time.


def _segments(dataset: Any) -> dict[str, list[Segment]]:
    """Segments of every index, oldest first."""
    return {
        index.name: [Segment(frozenset(segment.fragment_ids)) for segment in index.segments]
        for index in dataset.describe_indices()
    }


def _sizes(dataset: Any) -> dict[int, tuple[int, int]]:
    """(rows as written, rows deleted) by fragment."""
    found = {}
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        found[metadata.id] = (metadata.physical_rows, metadata.num_deletions)
    return found


def _covered(segments: Iterable[Segment]) -> frozenset[int]:
    return frozenset().union(*(segment.fragments for segment in segments))


def _crowded(sizes: dict[int, tuple[int, int]]) -> bool:
    rows = sum(written - dead for written, dead in sizes.values())
    return len(sizes) > min(_MOST_FRAGMENTS, TAIL_FRAGMENTS + rows // _ROWS_PER_FRAGMENT)


def _compact_tail(dataset: Any, full: bool) -> bool:
    """Make one fragment of the many small ones that no index covers yet."""
    sizes, indexes = _sizes(dataset), _segments(dataset)
    covered = _covered(segment for segments in indexes.values() for segment in segments)
    tail = sizes.keys() - covered
    # Before the first index is built, compacting only pays if there are very many.
    worth = len(tail) > (1 if full else TAIL_FRAGMENTS) if covered else _crowded(sizes)
    return worth and _compact(dataset, sizes, tail)


def _compact_rest(dataset: Any, full: bool) -> bool:
    """Rewrite fragments with many deleted rows, and small ones when there are too many."""
    sizes = _sizes(dataset)
    written = sum(each for each, _ in sizes.values())
    dead = sum(each for _, each in sizes.values())
    worth = full or _crowded(sizes) or dead > _DEAD_SHARE * written
    return worth and _compact(dataset, sizes, sizes.keys())


def _compact(dataset: Any, sizes: dict[int, tuple[int, int]], among: Iterable[int]) -> bool:
    """Whether anything was rewritten. Lance never puts fragments of different segments together."""
    wanted = {each for each in among if not _good(*sizes[each])}
    done = dataset.optimize.compact_files(
        materialize_deletions_threshold=_DEAD_SHARE,
        excluded_fragment_ids=sorted(sizes.keys() - wanted),
    )
    return bool(done.fragments_removed)


def _good(written: int, dead: int) -> bool:
    return written - dead >= _LARGE and dead <= _DEAD_SHARE * written


def _index(dataset: Any, full: bool) -> bool:
    began = dataset.version
    indexes = _segments(dataset)
    declared = {f"{each.name}{_INDEX}": each for each in declared_fields(dataset.schema)}
    for name in (_KEY, _CHUNK, _WORDS, *declared):
        if not _covered(indexes.get(name, [])):
            if name in declared:
                dataset.create_scalar_index(declared[name].name, _kind(declared[name].type), name=name)
            else:
                _build(dataset, name)
            indexes.pop(name, None)
    for name, segments in indexes.items():
        _extend(dataset, name, segments, full=full)
    return bool(dataset.version != began)


def _kind(column: pa.DataType) -> str:
    """The kind of index of a declared column."""
    import pyarrow as pa

    if pa.types.is_list(column):
        return "LABEL_LIST"
    return "BITMAP" if pa.types.is_boolean(column) else "BTREE"


def _build(dataset: Any, name: str, *, train: bool = True) -> None:
    if name == _KEY:
        dataset.create_scalar_index("document_id", "BTREE", name=name, train=train)
        return
    if name == _CHUNK:
        # Only people ask for single chunks. Measured on 2 cores with 1,000,000 rows: 10 ms to find one (without an
        # index 200 ms), after 0.15 s of building and in 4 MB; a tree takes 2.7 s and 42 MB.
        dataset.create_scalar_index("chunk_id", "BLOOMFILTER", name=name, train=train)
        return
    column, groups = SEARCHED, _groups(dataset) if train else []
    if len(groups) < 2:
        dataset.create_scalar_index(column, "INVERTED", name=name, train=train, **_TEXT_OPTIONS)
        return

    def segment(group: list[int]) -> Any:
        # A dataset object cannot be used by two threads at once.
        own = dataset.checkout_version(dataset.version)
        return own.create_index_uncommitted(
            column, "INVERTED", name=name, replace=True, fragment_ids=group, **_TEXT_OPTIONS
        )

    # Lance builds one segment on one core. A crash in between leaves files that nothing refers to.
    with ThreadPoolExecutor(_cores(_AT_ONCE)) as pool:
        dataset.commit_existing_index_segments(name, column, list(pool.map(segment, groups)))


def _groups(dataset: Any) -> list[list[int]]:
    """Fragments dealt out to segments of about as many rows each: one for each core that pays, or more, none of which
    is too large.
    """
    sizes = sorted(((rows, number) for number, (rows, _) in _sizes(dataset).items()), reverse=True)
    total = sum(rows for rows, _ in sizes)
    wanted = max(_cores(min(_AT_ONCE, total // _SEGMENT_ROWS)), math.ceil(total / _most_rows(total)))
    groups: list[tuple[int, list[int]]] = [(0, []) for _ in range(max(1, min(len(sizes), wanted)))]
    for rows, number in sizes:
        held, members = groups[0]
        heapreplace(groups, (held + rows, [*members, number]))
    return [members for _, members in groups]


def _cores(most: int) -> int:
    return min(most, os.cpu_count() or 1)


def _most_rows(total: int) -> float:
    """Rows of a segment of the text index at most, of so many in all."""
    return max(_MOST_ROWS, total * _MOST_SHARE)


def most_segments(total: int, most: float) -> float:
    """As many segments of so many rows at most as a growing index never has. Where there are more, rows of old ones
    were replaced again and again, and what is left of them is never merged: it has larger ones behind it.
    """
    return 2 * total / most + 2 * math.log2(max(1, most / TAIL_ROWS)) + 2


def _extend(dataset: Any, name: str, segments: Sequence[Segment], *, full: bool) -> None:
    """Index what the index does not cover, if that is worth it."""
    sizes = _sizes(dataset)
    covered = _covered(segments)
    tail = sum(rows for number, (rows, _) in sizes.items() if number not in covered)
    if tail > TAIL_ROWS or (full and (tail or len(segments) > 1)):
        rows = [sum(sizes[each][0] for each in segment.fragments & sizes.keys()) for segment in segments]
        most = _most_rows(sum(rows)) if name == _WORDS else math.inf
        if len(segments) > most_segments(sum(rows), most):
            _build(dataset, name)  # Since the last time about as many rows came as there are.
            return
        merged = len(segments) if full else trailing_merge(rows, tail, most)
        dataset.optimize.optimize_indices(num_indices_to_merge=merged, index_names=[name])


def _many_versions(dataset: Any) -> bool:
    """Whether the youngest epoch began the next `_NEW_VERSIONS`."""
    return bool(dataset.version // _NEW_VERSIONS > (State.of(dataset).since - 1) // _NEW_VERSIONS)


def _drop_old_versions(dataset: Any, keep_seconds: float) -> None:
    """Delete versions that are older than `keep_seconds`, or not among the newest, *and* older than the present epochs.
    With them go files of seven days and more that no version names: what a killed writer has left.

    An epoch's own versions stay: its commits must prove what happened since their base, and a recovery asks them which
    slices went in. But a partition that wrote nothing for long does not keep what all others wrote since.
    """
    now, versions = datetime.now(UTC), dataset.versions()
    written = {each["version"]: each["timestamp"].astimezone(UTC) for each in versions}
    idle = now - timedelta(seconds=keep_seconds * _IDLE)
    lately = min((version for version, at in written.items() if at >= idle), default=dataset.version)
    needed = State.of(dataset).needed_since(lately)
    old = now - timedelta(seconds=keep_seconds)
    recent = now - timedelta(seconds=min(keep_seconds, _RECENT_SECONDS))
    newest = set(sorted(written)[-_VERSIONS:])
    dropped = [
        version for version, at in written.items() if version < needed and at < (old if version in newest else recent)
    ]
    if dropped:
        dataset.cleanup_old_versions(versions=dropped, error_if_tagged_old_versions=False)
