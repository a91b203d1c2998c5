"""What one task did, slice by slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from instep.domain.counts import Counts
from instep.domain.waves import Failure, SliceOutcome
from instep.errors import UserError
from instep.outcomes import encode_outcome
from instep.tables.routing import Numbers

#: With more rows than this that fail in one task, what is declared must be wrong.
MAX_FAILURES = 10_000


@dataclass
class _Slice:
    counts: Counter[str] = field(default_factory=Counter)
    removed: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


class Tally:
    """Counts of rows by the place of their slice in the wave, the failures, and what failed before and did not now."""

    def __init__(self, slice_ids: Sequence[str]) -> None:
        self._ids = slice_ids
        self._slices: dict[int, _Slice] = {}
        self._failed = 0

    def count(self, name: str, places: Numbers) -> None:
        """One more of `name` for each row, by the place of its slice."""
        for place, rows in enumerate(np.bincount(places, minlength=1).tolist()):
            if rows:
                self._at(place).counts[name] += rows

    def count_bytes(self, size: int, places: Numbers) -> None:
        """The size of a batch, shared out among its rows."""
        shares = np.bincount(places, minlength=1) * size // max(1, len(places))
        for place in np.unique(places).tolist():
            self._at(place).counts["bytes_read"] += int(shares[place])

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
        """Of the slices that the task met."""
        return [
            encode_outcome(
                SliceOutcome(self._ids[place], 0, Counts.from_dict(each.counts), (), each.removed, each.failures)
            )
            for place, each in sorted(self._slices.items())
        ]

    def _at(self, place: int) -> _Slice:
        return self._slices.setdefault(place, _Slice())
