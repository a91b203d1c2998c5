"""Comparing targets with what they should hold: one that cannot be reached does not hide the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from instep.domain.refs import PartitionRef
from instep.entities.documents import differences
from instep.entities.documents.differences import Differences
from instep.entities.documents.setup import DocumentSetup
from instep.entities.generations import generation_of
from instep.errors import InstepError, UserError
from instep.jobs.target_order import held_up
from instep.ledger.ledger import Ledger
from instep.telemetry.progress import Progress


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of one partition: what differs, or why that is not known."""

    ref: PartitionRef
    differences: Differences | None
    problem: UserError | None = None

    def as_dict(self) -> dict[str, Any]:
        if self.differences is not None:
            return self.differences.as_dict() | {"problem": None}
        return {"ref": str(self.ref), "differs": None, "problem": str(self.problem)}


def compare(
    setups: Sequence[DocumentSetup],
    ledger: Ledger,
    generation: str | None,
    progress: Progress,
    *,
    deep: bool = False,
) -> list[Comparison]:
    """In a generation, or that which is promoted. Raises what keeps the only partition from being compared."""
    found = []
    for setup in setups:
        label = setup.ref.label
        progress.say(label, f"comparing with target {setup.target_name!r}")
        try:
            seen = differences.compare(
                setup,
                ledger,
                generation_of(ledger, setup.ref, generation),
                listing=partial(progress.listing, label),
                deep=deep,
            )
        except InstepError as error:
            if len(setups) == 1:
                raise
            found.append(Comparison(setup.ref, None, held_up("cannot be compared", setup.ref, error)))
        else:
            found.append(Comparison(setup.ref, seen))
    return found
