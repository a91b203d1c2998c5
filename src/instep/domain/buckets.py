"""Buckets: what each holds and how it keeps up, and which of them holds too much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from instep.domain.planning import SLICE_ROWS_MIN

#: A bucket is skewed when it holds more than so many times what the mean bucket does, and enough to matter: less than
#: the smallest slice holds nobody up.
SKEW: Final = 3
SKEW_ROWS: Final = SLICE_ROWS_MIN


class BucketLoad(NamedTuple):
    """Documents of a bucket that are indexed, their rows and bytes; and of changes, in milliseconds, how long they took
    from when they were planned until they were durable (the mean of `slices`, and the longest), and how long of that
    somebody worked on them. `pending` are changes that are planned and not durable yet, the oldest since
    `pending_since`.
    """

    bucket: int
    documents: int = 0
    rows: int = 0
    bytes: int = 0
    slices: int = 0
    latency: int | None = None
    longest: int | None = None
    working: int | None = None
    pending: int = 0
    pending_since: int | None = None


def skewed(loads: Sequence[BucketLoad], buckets: int) -> list[BucketLoad]:
    """The largest first."""
    most = max(SKEW_ROWS, SKEW * sum(each.rows for each in loads) / buckets)
    return sorted((each for each in loads if each.rows > most), key=lambda each: -each.rows)
