"""Losses of an index that no user has allowed: each may be small, but a few hours of them are not.

A single run cannot see that. When a source disappears gradually (a share that is unmounted, `rm -r` beside a worker
that watches), each look finds a few documents less. So recent losses count together with those of the next job. A
user's permission (`--allow-deletes`) resets the count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

#: How long a loss counts, in milliseconds, unless the project says otherwise.
LOSS_WINDOW: Final = 6 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Loss:
    """Units (documents, or rows of a table) that are gone, and rows (chunks) that documents have lost which are still
    there.
    """

    units: int = 0
    rows: int = 0

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.units + other.units, self.rows + other.rows)

    def __bool__(self) -> bool:
        return bool(self.units or self.rows)


NO_LOSS: Final = Loss()


class PartLoss(NamedTuple):
    """What a part of a job has lost; `allowed`: a person had said that it may lose what it wants."""

    loss: Loss
    allowed: bool


def lost_by(parts: Iterable[PartLoss]) -> Loss:
    """By all of these parts, the oldest first, since the last one that a person has allowed everything."""
    lost = NO_LOSS
    for part in parts:
        lost = NO_LOSS if part.allowed else lost + part.loss
    return lost
