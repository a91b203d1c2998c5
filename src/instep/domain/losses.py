"""What an index loses without anybody having said so: each loss may be small, and all of a few hours are not.

A run alone cannot see that. Where a source goes away bit by bit (a share that is unmounted, `rm -r` beside a worker
that watches) each look finds a few documents less. So what jobs have lost lately counts with what the next one would
lose. A person who says that it is right (`--allow-deletes`) has counting begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

#: So long what was lost counts, in milliseconds, unless the project says otherwise.
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
