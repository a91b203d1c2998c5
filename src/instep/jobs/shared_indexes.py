"""An index that partitions share, and that is gone from its target: who makes it again has the others built again, too,
for the ledger says that their rows are in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from instep.domain.events import InstanceTainted
from instep.domain.instances import Instance, InstanceState
from instep.entities.setup import EntitySetup
from instep.errors import Conflict, UserError
from instep.ledger.ledger import Ledger
from instep.planning.context import Context

_GONE: Final = "the index that it shared was gone, and another partition has made it again"


def make_index(setup: EntitySetup, physical: str, context: Context) -> None:
    """Make the index of a build, unless it is there."""
    for each in _others_in(setup, physical, context.ledger):
        with suppress(Conflict):  # Another process was quicker.
            context.ledger.events.append([InstanceTainted(instance=each.uuid, why=_GONE)])
            context.progress.say(setup.ref.label, f"its index is gone, with the rows of {each.ref}: built again, too")
    setup.create(physical)


def demand_no_refresh(setup: EntitySetup, physical: str, ledger: Ledger) -> None:
    """Check that no other partition is being refreshed in an index that is gone. Raises `UserError` if one is: once the
    index is made again, that refresh would end well, with its own rows alone.
    """
    for each in _others_in(setup, physical, ledger, InstanceState.REFRESHING):
        raise UserError(
            f"its index {physical!r} is gone, and job {str(each.refreshed_by)[:8]} on {each.ref} has not ended with it",
            where=setup.ref.label,
            hint=f"Build that again: instep run {each.ref} --full-refresh",
        )


def _others_in(
    setup: EntitySetup, physical: str, ledger: Ledger, state: InstanceState = InstanceState.LIVE
) -> Iterator[Instance]:
    """The instances in this state of which other partitions are served, if they share the index and it is gone."""
    if not setup.in_place or setup.target.exists(physical):
        return
    for each in ledger.checkpoints.of_entity(setup.ref.entity):
        current = ledger.instances.canonical(each.ref, each.generation)
        if each.physical == physical and each.ref != setup.ref and current is not None and current.state is state:
            yield current
