"""Assign the slices of a wave to tasks, grouped by bucket."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from instep.domain.waves import Wave, WaveSlice


def buckets(wave: Wave) -> list[list[WaveSlice]]:
    """The slices of each route bucket together, buckets ascending: one bucket is seen by one task."""
    groups: dict[int, list[WaveSlice]] = {}
    for part in wave.slices:
        groups.setdefault(part.bucket, []).append(part)
    return [groups[bucket] for bucket in sorted(groups)]


def assign(wave: Wave, tasks: int) -> list[list[WaveSlice]]:
    """Buckets dealt to at most `tasks` tasks, longest first to the task with the least (LPT). No task is empty."""
    groups = sorted(buckets(wave), key=_work, reverse=True)
    loads: list[tuple[int, int]] = [(0, number) for number in range(min(max(1, tasks), len(groups)))]
    hands: list[list[WaveSlice]] = [[] for _ in loads]
    for group in groups:
        load, number = heapq.heappop(loads)
        hands[number].extend(group)
        heapq.heappush(loads, (load + _work(group), number))
    return hands


def _work(group: Sequence[WaveSlice]) -> int:
    return sum(part.work for part in group)
