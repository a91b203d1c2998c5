"""Ownership of an entity's indexes: report those of another ledger before any work begins."""

from __future__ import annotations

import itertools
import uuid
from contextlib import suppress

from instep.domain.jobs import Job, JobState
from instep.entities.setup import EntitySetup
from instep.errors import Away, Fenced, Transient, Unknown, UserError
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.targets.ownership import NotOurs, Owner

Outage = Away | Transient | Unknown


def owner_in(ledger: Ledger) -> Owner:
    """The ledger's identity for targets."""
    naming = ledger.naming()
    # A ledger that always had its id has made no index without it.
    return Owner(naming.ledger, frozenset(ledger.partitions.all_indexes()) if naming.since else frozenset())


def demand_ownership(setup: EntitySetup, ledger: Ledger, generation: str) -> Outage | None:
    """Check the ownership of the index that a job would write and the alias that it would move. Raises `NotOurs` if
    another ledger owns one, `UserError` if this ledger is older than they are. A target that is down is not checked:
    the job waits for it. Returns that outage.
    """
    try:
        refusal = foreign(setup, ledger, generation) or replaced(setup, ledger, generation)
    except (Away, Transient, Unknown) as error:
        return error
    if refusal is not None:
        raise refusal
    return None


def foreign(setup: EntitySetup, ledger: Ledger, generation: str) -> NotOurs | None:
    """The error for an index or alias of the generation that belongs to another ledger, or None."""
    checkpoint = ledger.checkpoints.get(setup.ref, generation)
    names = [setup.alias, setup.alias_of(generation), checkpoint.physical if checkpoint else None]
    return next((found for name in names if name and (found := _foreign(setup, name))), None)


def foreign_alias(setup: EntitySetup) -> NotOurs | None:
    """The same for the alias of its readers."""
    return _foreign(setup, setup.alias)


def replaced(setup: EntitySetup, ledger: Ledger, generation: str) -> UserError | None:
    """The error for a target that has seen a newer epoch than this ledger has ever given, or None. Such a ledger is a
    backup, or a copy: it knows nothing of what was written since. No epoch is taken to find that out, for after some of
    them the target would accept this ledger again.
    """
    target, checkpoint = setup.target, ledger.checkpoints.get(setup.ref, generation)
    if checkpoint is None and setup.in_place:
        return None  # Of an index that partitions share: the first build of this one brings all of its rows.
    served = [target.served(alias) for alias in (setup.alias, setup.alias_of(generation)) if alias]
    known = [checkpoint.physical] if checkpoint else []
    # The target first: the ledger gives an epoch before any target sees it.
    seen = {each: target.epoch(each) for each in dict.fromkeys([*known, *served]) if each and target.exists(each)}
    if not seen or max(seen.values()) <= (last := ledger.leases.last_epoch(setup.ref)):
        return None
    physical = max(seen, key=seen.__getitem__)
    return _older(setup, physical, f"{seen[physical]} instead of {last}")


def newer_elsewhere(setup: EntitySetup, physical: str, lease: Lease, ledger: Ledger, error: Fenced) -> UserError:
    """The error for a target that has seen a newer epoch than that of a lease we still hold. Raises `Fenced` if the
    lease is lost: then another worker of this ledger has taken over, and goes on.
    """
    ledger.leases.renew(lease)
    return _older(setup, physical, str(error))


def _older(setup: EntitySetup, physical: str, why: str) -> UserError:
    return UserError(
        f"target {setup.target_name!r} has seen a newer epoch of {physical!r} than this ledger has ever given: {why}",
        where=setup.ref.label,
        hint="The ledger was replaced by an older one, such as a backup, and does not know what was written since. "
        f"To go on with it: instep adopt {setup.alias}",
    )


def restored(setup: EntitySetup, checkpoint: Checkpoint, job: Job | None) -> str | None:
    """Text about an index that has seen less than the `job` of its checkpoint did to it: an older state was put
    back. What the ledger records of it is not all there then, and no comparison with the source shows that.
    """
    part = next((each for each in job.parts if each.part.ref == setup.ref), None) if job else None
    if job is None or part is None or job.id != checkpoint.job_id or part.state is not JobState.COMPLETED:
        return None
    physical, done = checkpoint.physical, part.part.epoch
    if part.part.physical != physical or not setup.target.exists(physical) or setup.target.epoch(physical) >= done:
        return None
    return (
        f"the index of {setup.ref} in target {setup.target_name!r} is older than what was recorded of it, as after a "
        "restore from a backup: rows may be missing or outdated"
    )


def vanished(setup: EntitySetup, physical: str, ledger: Ledger) -> UserError:
    """The error for an index that the ledger has recorded and that is not in its target any more. Its hint is of that
    one alone: to build all others as well may cost hours.
    """
    built = ledger.checkpoints.of_partition(setup.ref)
    of_it = next((each.generation for each in built if each.physical == physical), None)
    is_promoted = of_it in (None, ledger.partitions.promoted(setup.ref) or "")
    named = setup.ref.label if is_promoted else f"{setup.ref.label} --generation {of_it or repr('')}"
    repair = f", or: instep diff {named} --repair" if setup.unit == "document" else ""
    return UserError(
        f"the index of {setup.ref} ({physical}) is gone from target {setup.target_name!r}",
        hint=f"Build it again: instep run {named} --full-refresh{repair}",
    )


def is_taken(setup: EntitySetup, physical: str) -> bool:
    """Whether the index name of a new instance exists already. False if the target is down: the job waits for it."""
    with suppress(Away, Transient, Unknown):
        return setup.target.exists(physical)
    return False


def unused(setup: EntitySetup, instance: str, generation: str) -> str:
    """A free name for the index of a new instance. A ledger restored from a backup gives ids a second time; the index
    that it had built under such an id is not reused.
    """
    ids = (str(uuid.uuid5(uuid.UUID(instance), str(number))) for number in itertools.count(1))
    names = (setup.physical(each, generation) for each in ids)
    return next(each for each in names if not setup.target.exists(each))


def _foreign(setup: EntitySetup, name: str) -> NotOurs | None:
    target = setup.target
    if target.mine(name):
        return None
    found = target.owner_of(name)
    whose = f"ledger {found[:8]}" if found else "an unknown ledger"
    served = target.served(setup.alias)
    what = f"index {name!r}{f', which serves {served},' if served and served != name else ''}"
    return NotOurs(
        f"{what} in target {setup.target_name!r} belongs to {whose}, not to this project's ledger"
        f" ({setup.owner.id[:8]}): nothing is written there",
        where=setup.ref.label,
        hint=f"If that ledger was lost, or the index is to move here: instep adopt {setup.alias}. "
        "If another project uses it: give the entity another name, or its target another place.",
    )
