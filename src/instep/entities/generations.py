"""Generations of a partition: choose the one that a command means, and find its index."""

from __future__ import annotations

from collections.abc import Iterable

from instep.domain.fingerprint import TARGET, change_text
from instep.domain.refs import PartitionRef, is_generation_name
from instep.domain.wants import Want
from instep.entities.ownership import foreign_alias
from instep.entities.plan_request import PlanRequest
from instep.entities.setup import EntitySetup
from instep.errors import Away, UserError
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger


def checked_generation(name: str | None) -> str | None:
    """The name itself. Raises `UserError` if it is not a valid generation name."""
    if name is not None and not is_generation_name(name):
        raise UserError(
            f"{name!r} cannot name a generation",
            hint="Use letters, digits, '.', '_' and '-', at most 64, beginning with a letter or a digit.",
        )
    return name


def generation_of(ledger: Ledger, ref: PartitionRef, asked: str | None) -> str:
    """The requested generation; else the promoted one, or the unnamed one while nothing is served."""
    return (ledger.partitions.promoted(ref) or "") if asked is None else asked


def one_generation_of(ledger: Ledger, refs: Iterable[PartitionRef], asked: str | None) -> str:
    """The generation that several partitions are read in. Raises `UserError` when they have promoted different ones."""
    found = {ref: generation_of(ledger, ref, asked) for ref in refs}
    if len(set(found.values())) > 1:
        names = ", ".join(f"{ref}: {generation!r}" for ref, generation in found.items())
        raise UserError(f"they are read in different generations ({names})", hint="Name one, or ask one by one.")
    return next(iter(found.values()), "")


def physical_of(setup: EntitySetup, ledger: Ledger, generation: str | None) -> str | None:
    """The physical index to read: by the alias, or by the checkpoint of a requested generation."""
    if generation is None:
        served = setup.target.served(setup.alias)
        if served and (stranger := foreign_alias(setup)):
            raise stranger
        return served
    checkpoint = ledger.checkpoints.get(setup.ref, generation)
    return checkpoint.physical if checkpoint else None


def moved_text(setup: EntitySetup, ledger: Ledger, generation: str | None) -> str | None:
    """A text that the index of a generation is not in the declared target, but in another; or None."""
    checkpoint = ledger.checkpoints.get(setup.ref, generation_of(ledger, setup.ref, generation))
    if checkpoint is None or TARGET not in setup.changed_since_built(ledger, checkpoint):
        return None
    return change_text(TARGET, setup.fingerprint, checkpoint.fingerprint)


def built(ledger: Ledger, ref: PartitionRef, generation: str) -> Checkpoint:
    """The checkpoint of the generation. Raises `UserError` when it is not built."""
    checkpoint = ledger.checkpoints.get(ref, generation)
    if checkpoint is not None:
        return checkpoint
    there = [each.generation for each in ledger.checkpoints.of_partition(ref)]
    others = ", ".join(repr(each) if each else "the one without a name" for each in there)
    if not others and not generation:
        raise UserError(
            f"nothing is built of {ref}, as far as this ledger knows", hint=build_hint(ledger, ref, generation)
        )
    named = f"generation {generation!r}" if generation else "the generation without a name"
    known = f" (built: {others})" if others else ""
    raise UserError(f"nothing is built of {named} of {ref}", hint=f"{build_hint(ledger, ref, generation)}{known}")


def waiting_wants(ledger: Ledger, ref: PartitionRef, generation: str) -> list[Want]:
    """Open wants of a partition's generation: the newest ones, and the one to begin first, however old."""
    found = [*ledger.wants.startable([ref]), *ledger.wants.newest(ref=ref, open_only=True)]
    return list({each.id: each for each in found if each.generation == generation}.values())


def wanted_as_of_now(request: PlanRequest, ref: PartitionRef, *, now: int) -> list[str]:
    """Reasons to work without any change: wants that only a look at the source up to this moment (ms) can satisfy."""
    wants = waiting_wants(request.ledger, ref, request.generation)
    lacking = [each for each in wants if not each.satisfied_by(request.current)]
    waiting = [each.id for each in lacking if each.needed is not None and each.needed <= now]
    return [f"nothing has changed; wanted as of now by {', '.join(each[:8] for each in waiting)}"] if waiting else []


def build_hint(ledger: Ledger, ref: PartitionRef, generation: str) -> str:
    """The command that builds it. A run that names no generation means the promoted one."""
    meant = generation_of(ledger, ref, None) == generation
    option = "" if meant else f" --generation {generation or repr('')}"
    return f"Build it: instep run {ref.entity}{option}"


def demand_rest(setup: EntitySetup, ledger: Ledger, checkpoint: Checkpoint) -> None:
    """Check that no job is in work: its rows are in the target before they are in the ledger."""
    job = ledger.jobs.unfinished(setup.ref, checkpoint.generation)
    part = job.part(setup.ref).part if job else None
    if job and part and part.physical == checkpoint.physical:
        raise Away(
            f"{setup.ref}: job {job.id} has not ended, so the target is ahead of the ledger",
            hint="Compare when it has; `instep run` continues it.",
        )
    if ledger.checkpoints.get(setup.ref, checkpoint.generation) != checkpoint:
        raise Away(f"{setup.ref} was brought up to date while it was compared", hint="Compare again.")
