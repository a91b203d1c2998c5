"""What must hold of the log, whatever went wrong: it leads to what is stored, and it says what jobs have done, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from instep.domain.events import (
    DependencyMissed,
    InstanceFailed,
    InstanceLive,
    InstanceRefreshed,
    InstanceServed,
    RefreshFailed,
    read,
)
from instep.domain.fold import replay
from instep.domain.instances import Instance, InstanceState
from instep.domain.refs import PartitionRef, generation_text
from instep.domain.state import State
from instep.domain.wants import WantState
from instep.ledger.event_log import LogRow
from instep.ledger.ledger import Ledger

from .documents import WRONG

#: What says how a job's work on an instance has ended.
_ENDS = (InstanceLive, InstanceFailed, InstanceRefreshed, RefreshFailed)
#: More than any schedule has.
_ALL = 100_000


class LogChecker:
    """Looks at a ledger that is at rest."""

    def __init__(self, ledger: Ledger, refs: Iterable[PartitionRef], broken: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._refs = list(refs)
        self._broken = broken

    def check(self) -> None:
        rows = self._ledger.events.rows(0, _ALL)
        for problem in (*self._sound(rows), *self._projected(rows), *self._followed(rows)):
            self._broken(f"log: {problem}")
        state = self._ledger.events.state()
        for ref in self._refs:
            if self._ledger.partitions.promoted(ref) != state.promoted.get(str(ref)):
                self._broken(f"log: {ref}: the promoted generation is told otherwise")
            for generation in state.generations(str(ref)):
                for problem in (*self._served(state, ref, generation), *self._built_back(ref, generation)):
                    self._broken(f"log: {generation_text(ref, generation)}: {problem}")

    def kinds(self) -> list[str]:
        """Of all the events that have been."""
        return sorted({row[2] for row in self._ledger.events.rows(0, _ALL)})

    def fulfilled(self) -> None:
        """Check that nothing is left to do, and that no want waits for something that is there."""
        for want in self._ledger.wants.newest(open_only=True):
            if all(self._ledger.checkpoints.get(PartitionRef.parse(each), want.generation) for each in want.refs):
                self._broken(f"log: want {want.id} of {', '.join(want.refs)} is {want.state}, needs {want.needed}")

    def _sound(self, rows: list[LogRow]) -> Iterator[str]:
        if [row[0] for row in rows] != list(range(1, len(rows) + 1)):
            yield "its numbers have gaps"
        if [row[1] for row in rows] != sorted(row[1] for row in rows):
            yield "its times go back"
        verified = self._ledger.events.verify()
        if verified.events != len(rows):
            yield f"{verified.events} events were verified of {len(rows)}"
        if verified.skipped:
            yield f"it has events without effect: {dict(verified.skipped)}"
        yield from verified.differences

    def _projected(self, rows: list[LogRow]) -> Iterator[str]:
        """By the port alone: what readers are told is what a replay gives."""
        ledger = self._ledger
        state = replay(read(rows), State(naming=ledger.naming()))
        if state != ledger.events.state():
            yield "the ledger's state is not what it leads to"
        for ref in sorted({PartitionRef.parse(each.ref) for each in state.instances.values()}):
            told = {each.uuid: each for each in ledger.instances.newest(ref, _ALL)}
            if told != {each.uuid: each for each in state.instances.values() if each.ref == str(ref)}:
                yield f"instances of {ref} are told otherwise"
            for generation in state.generations(str(ref)):
                if ledger.instances.canonical(ref, generation) != state.current(str(ref), generation):
                    yield f"the canonical instance of {generation_text(ref, generation)} is told otherwise"
        if {each.id: each for each in ledger.wants.newest(limit=_ALL)} != state.wants:
            yield "wants are told otherwise"

    def _followed(self, rows: list[LogRow]) -> Iterator[str]:
        """Each part that has ended is told of once, in the way it has ended; who is in work is so for an open part.
        Where what a job needs has failed, its instance has too: its part ends without a word.
        """
        events = [each.event for each in read(rows)]
        missed = [each for each in events if isinstance(each, DependencyMissed)]
        stranded = {(each.job, uuid) for each in missed if self._failed(each.want) for uuid in each.instances}
        ends = Counter((each.job, each.instance) for each in events if isinstance(each, _ENDS))
        built = Counter(each.instance for each in events if isinstance(each, InstanceLive))
        served = Counter(each.instance for each in events if isinstance(each, InstanceServed))
        if built != served:
            yield f"built were {built}, and served {served}"
        in_work = set()
        for job in self._ledger.jobs.newest(_ALL):
            for status in job.parts:
                key = job.id, status.part.instance
                told = ends.pop(key, 0)
                if status.state is None:
                    in_work.add(key)
                if told != (status.state is not None) and (told or key not in stranded):
                    yield f"the end of job {job.id} on {status.part.ref}, {status.state}, was told {told} times"
        for (job_id, instance), told in ends.items():
            yield f"an end of job {job_id} on instance {instance} was told {told} times, and it had no such part"
        yield from self._in_work(in_work, stranded)

    def _failed(self, want_id: str) -> bool:
        want = self._ledger.wants.get(want_id)
        return want is not None and want.state.ended and want.state is not WantState.SUCCESSFUL

    def _in_work(self, expected: set[tuple[str, str]], stranded: set[tuple[str, str]]) -> Iterator[str]:
        found = {
            (each.worked_on_by, each.uuid)
            for ref in self._refs
            for each in self._ledger.instances.newest(ref, _ALL)
            if each.worked_on_by is not None
        }
        if not expected - stranded <= found <= expected:
            yield f"in work are {sorted(found)}, and open are parts of {sorted(expected)}"

    def _served(self, state: State, ref: PartitionRef, generation: str) -> Iterator[str]:
        checkpoint, served = self._ledger.checkpoints.get(ref, generation), state.reading(str(ref), generation)
        if served is None or checkpoint is None:
            if served is not None or checkpoint is not None:
                yield f"it serves {served}, the checkpoint is {checkpoint}"
            return
        ours = (served.uuid, served.physical, served.watermark, served.fingerprint)
        if ours != (checkpoint.instance, checkpoint.physical, checkpoint.watermark, checkpoint.fingerprint):
            yield f"it serves {ours}, the checkpoint is {checkpoint}"
        last = served.refreshed_by or served.job
        if served.state is InstanceState.LIVE and served.error is None and checkpoint.job_id != last:
            yield f"the checkpoint is of job {checkpoint.job_id}, the instance of job {last}"
        yield from self._current(state, ref, served)

    def _built_back(self, ref: PartitionRef, generation: str) -> Iterator[str]:
        """Transforms are numbered as they are changed."""
        found = [each for each in self._ledger.instances.newest(ref, _ALL) if each.generation == generation]
        built = [(each.live_at, each.fingerprint["transform"]) for each in found if each.live_at and each.fingerprint]
        numbers = [int(transform.rstrip(WRONG)) for _, transform in sorted(built)]
        if numbers != sorted(numbers):
            yield f"what newer code had built was built back: {numbers}"

    def _current(self, state: State, ref: PartitionRef, served: Instance) -> Iterator[str]:
        current = state.current(str(ref), served.generation)
        assert current is not None, "one is served"
        if current.usable and current.uuid != served.uuid:
            yield f"{current.uuid} is {current.state}, and {served.uuid} is served"
        for each in self._ledger.instances.newest(ref, _ALL):
            if each.left and each.state in (InstanceState.MISSING, InstanceState.BUILDING, InstanceState.REFRESHING):
                yield f"{each.uuid} was left, and is {each.state}"
