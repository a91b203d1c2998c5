"""Buckets: size and latency of each, and the skewed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from instep.domain.planning import SLICE_ROWS_MIN

#: A bucket is skewed when it holds more than so many times the mean, and more than the smallest slice.
SKEW: Final = 3
SKEW_ROWS: Final = SLICE_ROWS_MIN


class BucketLoad(NamedTuple):
    """Load of one bucket: indexed documents, their rows and bytes. For changes, in milliseconds: time from plan to
    durable (`latency` is the mean of `slices`, and `longest`), and the time in work. `pending` are planned changes that
    are not durable yet, the oldest since `pending_since`.
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
    """Skewed buckets, the largest first."""
    most = max(SKEW_ROWS, SKEW * sum(each.rows for each in loads) / buckets)
    return sorted((each for each in loads if each.rows > most), key=lambda each: -each.rows)
