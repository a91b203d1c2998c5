"""What must hold for readers: each alias serves what the ledger says, and what it serves is there."""

from __future__ import annotations

from collections.abc import Callable

from instep.domain.refs import PartitionRef, generation_text
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger

from .target import SimTarget


class ReadersChecker:
    """Looks at a ledger and a target that are at rest."""

    def __init__(self, ledger: Ledger, target: SimTarget, broken: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._target = target
        self._broken = broken

    def check(self, ref: PartitionRef) -> None:
        """Those who ask for no generation get that which is promoted."""
        promoted = self._ledger.partitions.promoted(ref)
        checkpoint = None if promoted is None else self._ledger.checkpoints.get(ref, promoted)
        served = self._target.served(ref.entity)
        if served != (checkpoint.physical if checkpoint else None):
            self._broken(f"{ref}: {served} is served, generation {promoted!r} is promoted: {checkpoint}")

    def finds(self, ref: PartitionRef, generation: str, checkpoint: Checkpoint | None) -> bool:
        """Those who ask for one get what is built of it, if anything is; and that is there, asked for or not."""
        name = generation_text(ref, generation)
        physical = checkpoint.physical if checkpoint else None
        if generation and self._target.served(f"{ref.entity}@{generation}") != physical:
            self._broken(f"{name}: its alias does not serve what the checkpoint says: {checkpoint}")
            return False
        if physical is not None and physical not in self._target.indexes:
            self._broken(f"{name}: {physical} is served and not there")
            return False
        return True
