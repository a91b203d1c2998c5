"""Counts of one task for each slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from instep.domain.counts import Counts
from instep.domain.waves import Failure, SliceOutcome
from instep.errors import UserError
from instep.pipeline.outcomes import encode_outcome
from instep.pipeline.tables.routing import Numbers

#: With more rows than this that fail in one task, what is declared must be wrong.
MAX_FAILURES = 10_000


@dataclass
class _Slice:
    counts: Counter[str] = field(default_factory=Counter)
    removed: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def outcome_counts(self) -> Counts:
        written = self.counts["read"] - self.counts["deleted"] - self.counts["failed"]
        return Counts.from_dict({**self.counts, "written": written})


class Tally:
    """Counts of rows by the place of their slice in the wave, the failures, and what failed before and did not now."""

    def __init__(self, slice_ids: Sequence[str]) -> None:
        self._ids = slice_ids
        self._slices: dict[int, _Slice] = {}
        self._failed = 0

    def read(self, places: Numbers, size: int) -> None:
        """A batch: the place of each row's slice, and its bytes, which are shared out among the rows."""
        for place, rows in _counted(places):
            counts = self._at(place).counts
            counts["read"] += rows
            counts["bytes_read"] += size * rows // len(places)

    def count(self, name: str, places: Numbers, weights: Numbers | None = None) -> None:
        """For each row one more of `name`, or as many as its weight."""
        for place, number in _counted(places, weights):
            self._at(place).counts[name] += number

    def fail(self, failures: Iterable[tuple[int, Failure]]) -> None:
        """Failures by the place of their slice. Raises `UserError` when there are too many."""
        for place, failure in failures:
            self._failed += 1
            if self._failed > MAX_FAILURES:
                first = next(each for part in self._slices.values() for each in part.failures)
                raise UserError(
                    f"more than {MAX_FAILURES:,} rows cannot be written; {first.uri}: {first.reason}",
                    hint="Check key and columns of the entity: instep check",
                )
            part = self._at(place)
            part.counts["failed"] += 1
            part.failures.append(failure)

    def remove(self, place: int, row_id: str) -> None:
        """A row that had failed before."""
        self._at(place).removed.append(row_id)

    def outcomes(self) -> list[bytes]:
        """Of the slices that the task met. What was read, not deleted and did not fail is written."""
        return [
            encode_outcome(SliceOutcome(self._ids[place], 0, each.outcome_counts(), (), each.removed, each.failures))
            for place, each in sorted(self._slices.items())
        ]

    def _at(self, place: int) -> _Slice:
        return self._slices.setdefault(place, _Slice())


def _counted(places: Numbers, weights: Numbers | None = None) -> list[tuple[int, int]]:
    """How many rows are at each place."""
    found = np.bincount(places, weights)
    at = np.flatnonzero(found)
    return list(zip(at.tolist(), found[at].astype(np.int64).tolist(), strict=True))
