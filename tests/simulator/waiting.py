"""What must hold of entities that are made from others: waiting parts have no work, and nothing waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from instep.domain.events import InstanceBuilding, InstanceRefreshing, read
from instep.domain.instances import Instance
from instep.domain.jobs import JobState, OpenPart
from instep.domain.refs import PartitionRef
from instep.domain.state import State
from instep.domain.wants import Want, WantState
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart

#: In words, how a job has ended that something could not be had for.
IN_VAIN = " waits for "
#: More than any schedule has.
_ALL = 100_000


class WaitingChecker:
    """`upstream` says what each entity is made from."""

    def __init__(self, ledger: Ledger, upstream: Mapping[str, tuple[str, ...]], broken: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._upstream = {
            str(PartitionRef(name)): {str(PartitionRef(each)) for each in above} for name, above in upstream.items()
        }
        self._broken = broken
        self._physicals: dict[str, str] = {}

    # While it runs.

    def planned(self, new: NewPart) -> None:
        self._physicals[new.part.physical] = new.part.instance

    def committed(self, physical: str) -> None:
        """(Slices are claimed of what waits by the worker that gives it up: to see what is in the target.)"""
        uuid = self._physicals.get(physical)
        instance = self._ledger.instances.get(uuid) if self._upstream and uuid else None
        if instance is not None and instance.waits:
            self._broken(f"a commit landed though {instance.ref} waits for {', '.join(instance.waits)}")

    # At rest.

    def workable(self, parts: Sequence[OpenPart], refs: set[PartitionRef]) -> list[OpenPart]:
        """Those parts that need not wait for others than those who are there, for these partitions, can build."""
        return [each for each in parts if self._waited_for(each.part.instance) <= refs - self._stopped(refs)]

    def _stopped(self, refs: set[PartitionRef]) -> set[PartitionRef]:
        """A job that a user has stopped is for a later run to resume: until then, wants on it wait."""
        jobs = [
            (ref, self._ledger.jobs.get(each.worked_on_by or ""))
            for ref in refs
            for each in self._ledger.instances.newest(ref)
        ]
        return {ref for ref, job in jobs if job is not None and job.state is JobState.STOPPED}

    def missed(self, refs: set[PartitionRef]) -> bool:
        """Whether an awaited partition has not been started."""
        if not self._upstream:
            return False
        wants = [want for ref in refs for want in self._ledger.wants.newest(ref=ref, open_only=True, limit=_ALL)]
        return any(each.derivative_of and each.state is WantState.IDLE for each in wants)

    def _waited_for(self, uuid: str) -> set[PartitionRef]:
        """By an instance, and by what that waits for."""
        instance = self._ledger.instances.get(uuid)
        found: set[PartitionRef] = set()
        for want in map(self._ledger.wants.get, instance.waits if instance else ()):
            for ref in map(PartitionRef.parse, want.refs if want else ()):
                current = self._ledger.instances.canonical(ref, want.generation if want else "")
                found |= {ref, *(self._waited_for(current.uuid) if current else ())}
        return found

    def check(self) -> None:
        state = self._ledger.events.state()
        for problem in (*self._waits(state), *self._stated(state), *self._inputs(state), *self._made(state)):
            self._broken(problem)

    def ended(self) -> None:
        """Nothing is left to do, so that nothing waits."""
        state = self._ledger.events.state()
        for each in state.instances.values():
            if each.waits:
                self._broken(f"{each.uuid} of {each.ref} still waits for {', '.join(each.waits)}")
        for want in state.wants.values():
            if want.derivative_of and not want.state.ended:
                self._broken(f"{want.id}, which job {want.derivative_of} made, is still {want.state}")

    def in_vain(self, instance: Instance) -> bool:
        """Whether its last build or refresh has failed because something above it is not rebuilt either."""
        last = instance if instance.usable else self._ledger.instances.get(instance.previous or "")
        above = [PartitionRef.parse(each) for each in self._upstream.get(instance.ref, ())]
        served = [self._ledger.instances.canonical(ref, self._ledger.partitions.promoted(ref) or "") for ref in above]
        lacking = any(each is None or not each.usable or self.in_vain(each) for each in served)
        return lacking and last is not None and IN_VAIN in (last.error or "")

    def _waits(self, state: State) -> Iterator[str]:
        """Who waits does so for something that may still come."""
        for each in state.instances.values():
            if each.waits and each.worked_on_by is None:
                yield f"{each.uuid} of {each.ref} is {each.state}, and waits"
            for want in (state.wants[id] for id in each.waits):
                if want.state.ended or each.uuid not in want.blocks:
                    yield f"{each.ref} waits for want {want.id}, which is {want.state} and blocks {want.blocks}"

    def _stated(self, state: State) -> Iterator[str]:
        for want in state.wants.values():
            if want.state.ended and want.state is not WantState.SUCCESSFUL and not want.error:
                yield f"want {want.id} is {want.state}, and no reason is known"

    def _inputs(self, state: State) -> Iterator[str]:
        """What a job took as there was there, at some time of the job."""
        for row in read(self._ledger.events.rows(0, _ALL)):
            event = row.event
            if not isinstance(event, InstanceBuilding | InstanceRefreshing):
                continue
            job = self._ledger.jobs.get(event.job)
            assert job is not None, "jobs are not forgotten"
            for each in (state.instances.get(uuid) for uuid in event.inputs):
                instance = state.instances[event.instance]
                if each is None or each.ref not in self._upstream.get(instance.ref, ()):
                    yield f"{instance.ref} is made from {each}"
                elif each.live_at is None or each.live_at > row.at:
                    yield f"{instance.ref} is made from {each.uuid} of {each.ref} before that was Live"
                elif each.ended_at is not None and each.ended_at < job.created_at:
                    yield f"{instance.ref} is made from {each.uuid} of {each.ref}, which was left before"

    def _made(self, state: State) -> Iterator[str]:
        """What is Live was made from something of each entity above, and from all that its job waited for."""
        for each in state.instances.values():
            above = self._upstream.get(each.ref)
            if above and each.live_at is not None and above - {state.instances[uuid].ref for uuid in each.inputs}:
                yield f"{each.uuid} of {each.ref} was built of {each.inputs} alone"
        for want in state.wants.values():
            if want.derivative_of and want.state is WantState.SUCCESSFUL:
                yield from self._used(want, state)

    def _used(self, want: Want, state: State) -> Iterator[str]:
        found = [state.instances[uuid] for uuid in want.instances]
        if [each.ref for each in found] != list(want.refs) or not all(_reaches(each, want) for each in found):
            yield f"want {want.id} of {want.refs} was satisfied by {found}"
        for each in (state.instances[uuid] for uuid in want.blocks):
            built = each.live_at is not None and each.job == want.derivative_of
            if built and not set(want.instances) <= set(each.inputs):
                yield f"{each.ref} waited for {want.instances}, and is made from {each.inputs}"


def _reaches(instance: Instance, want: Want) -> bool:
    return instance.generation == want.generation and (instance.watermark or 0) >= (want.needed or 0)
