"""Aliases of an entity: those that should serve an index, and those by which readers find nothing any more."""

from __future__ import annotations

from instep.entities.setup import EntitySetup
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.targets.document_target import Showing


def aliases_of(setup: EntitySetup, generation: str, ledger: Ledger) -> list[str]:
    """Aliases of a generation: its own, if it has a name, and the entity's if it is the promoted one or the first
    built.
    """
    own = setup.alias_of(generation)
    is_promoted = ledger.partitions.promoted(setup.ref) in (None, generation)
    return [*([own] if own else []), *([setup.alias] if is_promoted else [])]


def late_aliases(setup: EntitySetup, generation: str, physical: str, ledger: Ledger) -> list[str]:
    """Aliases that should serve an index shared by several partitions, and do not although all of these are built.
    Each partition checks this after recording its own build, so the last one sees all; if that worker dies, the next
    run of any of them does.
    """
    if not setup.in_place:
        return []
    aliases = aliases_of(setup, generation, ledger)
    late = [each for each in aliases if setup.target.served(each) != physical or _is_lost(setup, each)]
    if not late or not setup.target.exists(physical):
        return []  # A missing index is built again: the next plan says so.
    built = [each for each in ledger.checkpoints.of_entity(setup.ref.entity) if each.generation == generation]
    return late if all(each.physical == physical for each in built) else []


def lost_aliases(setup: EntitySetup, checkpoint: Checkpoint, ledger: Ledger) -> list[str]:
    """Aliases by which readers find nothing, though what was built is there: they were dropped. One that leads
    elsewhere is none: it may be meant.
    """
    generation = checkpoint.generation
    if setup.in_place:
        aliases = late_aliases(setup, generation, checkpoint.physical, ledger)
    else:
        aliases = aliases_of(setup, generation, ledger)
    return [each for each in aliases if setup.target.served(each) is None or _is_lost(setup, each)]


def _is_lost(setup: EntitySetup, alias: str) -> bool:
    return isinstance(setup.target, Showing) and not setup.target.shows(alias)
