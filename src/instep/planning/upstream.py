"""Upstream of a partition: the instances that a job reads, and those that it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from instep.domain.clock import Ids
from instep.domain.events import DependencyMissed, WantCanceled
from instep.domain.instances import Instance
from instep.domain.jobs import JobPart, OpenPart
from instep.domain.refs import PartitionRef
from instep.domain.wants import Want, WantState
from instep.entities.setup import EntitySetup
from instep.errors import Conflict, UserError
from instep.ledger.ledger import Ledger
from instep.planning.context import Context

Setups = Mapping[PartitionRef, EntitySetup]
#: A part of a job: job id and partition.
PartKey = tuple[str, PartitionRef]


@dataclass(frozen=True, slots=True)
class Upstream:
    """Upstream found when a job is planned: `inputs` are UUIDs of existing instances; `missing` the partitions to wait
    for, by generation and required watermark (None: any).
    """

    inputs: tuple[str, ...]
    missing: Mapping[tuple[str, int | None], tuple[str, ...]]

    def missed(self, job_id: str, instance: str, ids: Ids) -> tuple[DependencyMissed, ...]:
        return tuple(
            DependencyMissed(
                job=job_id, instances=(instance,), want=ids.new(), missing=refs, generation=generation, as_of=as_of
            )
            for (generation, as_of), refs in self.missing.items()
        )


def upstream_of(
    setup: EntitySetup, ledger: Ledger, *, job_id: str, beside: Mapping[PartitionRef, tuple[str, int | None]]
) -> Upstream:
    """The upstream of a job on this entity. Partitions of the same job are waited for as well: `beside` has their
    generation, and the watermark that they reach by it (None: the time when the job was made).
    """
    job = ledger.jobs.get(job_id)
    inputs: list[str] = []
    missing: dict[tuple[str, int | None], tuple[str, ...]] = {}
    for ref in setup.depends_on:
        generation, current = _read(ledger, ref)
        if ref in beside:
            generation, reached = beside[ref]
            key = generation, job.created_at if reached is None and job else reached
        elif current is None or not current.usable:
            key = generation, None
        else:
            inputs.append(current.uuid)
            continue
        missing[key] = (*missing.get(key, ()), str(ref))
    return Upstream(tuple(inputs), missing)


def wait_for(ledger: Ledger, ids: Ids, job_id: str, part: JobPart, refs: Sequence[PartitionRef]) -> None:
    """Have a part in work wait for partitions that it turned out to need. Raises `UserError` if they are there, or wait
    for it themselves.
    """
    names = ", ".join(map(str, refs))
    missing: dict[tuple[str, int | None], tuple[str, ...]] = {}
    for ref in refs:
        generation, current = _read(ledger, ref)
        if current is None or not current.usable:
            missing[generation, None] = (*missing.get((generation, None), ()), str(ref))
    if not missing:
        raise UserError(f"{part.ref} asks for {names}, which is there", hint="Ask only for what is not there yet.")
    instance = ledger.instances.get(part.instance)
    if instance is not None and instance.waits:
        return  # Another worker of the job was told the same.
    try:
        ledger.events.append(Upstream((), missing).missed(job_id, part.instance, ids))
    except Conflict as error:
        known = ledger.instances.get(part.instance)
        if known is not None and known.worked_on_by == job_id and not known.waits:
            raise UserError(f"{part.ref} asks for {names}: {error}") from error
        raise


def missing_upstream(setup: EntitySetup, ledger: Ledger) -> tuple[PartitionRef, ...]:
    """The partitions that a job on this entity would wait for now."""
    found = ((ref, _read(ledger, ref)[1]) for ref in setup.depends_on)
    return tuple(ref for ref, current in found if current is None or not current.usable)


def replaced_inputs(setup: EntitySetup, ledger: Ledger, instance: Instance) -> list[str]:
    """The upstream that is there in other instances than this one was made from, if that is a reason to build it
    anew.
    """
    if not setup.rebuild_with_upstream:
        return []
    known = set(instance.inputs)
    found = [(ref, _read(ledger, ref)[1]) for ref in setup.depends_on]
    return [str(ref) for ref, current in found if current and current.usable and current.uuid not in known]


def _read(ledger: Ledger, ref: PartitionRef) -> tuple[str, Instance | None]:
    """The generation that is read by default, and its canonical instance."""
    generation = ledger.partitions.promoted(ref) or ""
    return generation, ledger.instances.canonical(ref, generation)


def upstream_first(setups: Setups, refs: Iterable[PartitionRef]) -> list[PartitionRef]:
    """Sort partitions so that each comes after its upstream."""
    left, ordered = list(refs), list[PartitionRef]()
    while left:
        waiting = set(left)
        ready = [ref for ref in left if waiting.isdisjoint(setups[ref].depends_on)]
        ordered += ready or left
        left = [ref for ref in left if ref not in ordered]
    return ordered


def in_hand(parts: Iterable[OpenPart], setups: Setups) -> set[PartitionRef]:
    """Partitions with a part that a worker will resume by itself: no job is started for these."""
    going_on = (each for each in parts if each.error is None)
    return {each.part.ref for each in going_on if each.held or setups[each.part.ref].fits(each.part)}


def cancel_waits(ledger: Ledger, ref: PartitionRef, generation: str, why: str) -> bool:
    """Cancel the wants of jobs and messages for a partition that cannot be built: else these would wait for ever. Those
    of people stay. Whether there were any.
    """
    current = ledger.instances.canonical(ref, generation)
    if current is not None and current.usable:
        return False
    found = False
    for want in ledger.wants.newest(ref=ref, open_only=True):
        waits = want.state is WantState.IDLE and want.generation == generation
        if waits and (want.derivative_of or want.retries):
            with suppress(Conflict):  # Another process was faster, or has built it.
                ledger.events.append([WantCanceled(want=want.id, why=why)])
                found = True
    return found


class Waiting:
    """The parts of one worker that wait for other partitions. All of it is in the ledger: any worker can go on."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._wants: dict[PartKey, tuple[str, ...]] = {}
        self._asked: dict[PartKey, tuple[PartitionRef, ...]] = {}

    def __contains__(self, key: PartKey) -> bool:
        return key in self._wants

    @property
    def refs(self) -> set[PartitionRef]:
        return {ref for _, ref in self._wants}

    def upstream(self, setups: Setups, refs: Iterable[PartitionRef]) -> set[PartitionRef]:
        """Find all direct and indirect upstream of these partitions among the setups, with what they turned out to
        need.
        """
        asked = {ref: above for (_, ref), above in self._asked.items()}
        found: set[PartitionRef] = set()
        pending = [ref for ref in refs if ref in setups]
        while pending:
            ref = pending.pop()
            above = (*setups[ref].depends_on, *asked.get(ref, ()))
            new = [each for each in above if each in setups and each not in found]
            found.update(new)
            pending += new
        return found

    def forget(self, key: PartKey) -> None:
        self._wants.pop(key, None)
        self._asked.pop(key, None)

    def wants(self) -> list[Want]:
        """The derivative wants that are waited for, in their current state."""
        ids = dict.fromkeys(each for waits in self._wants.values() for each in waits)
        found = (self._context.ledger.wants.get(each) for each in ids)
        return [want for want in found if want is not None and not want.state.ended]

    def look(self, key: PartKey, part: JobPart) -> str | None:
        """Check whether the part waits, and remember it. Returns an error if its instance was taken from its job
        because its upstream failed.
        """
        job_id, ref = key
        instance = self._context.ledger.instances.get(part.instance)
        if instance is None or instance.worked_on_by != job_id:
            self.forget(key)
            return (instance.error if instance else None) or f"job {job_id} does not work on {ref} any more"
        if instance.waits and self._wants.get(key) != instance.waits:
            self._wants[key] = instance.waits
            names = dict.fromkeys(each for want in self.wants() if want.id in instance.waits for each in want.refs)
            self._asked[key] = tuple(map(PartitionRef.parse, names))
            self._context.progress.say(ref.label, f"waits for {', '.join(names)}")
        elif not instance.waits and key in self._wants:
            self.forget(key)
            self._context.progress.say(ref.label, "what it waited for is there")
        return None
