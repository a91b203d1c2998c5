"""What must hold whatever went wrong: read from histories, target and source, not from the engine's counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from instep.domain.clock import Timing
from instep.domain.counts import COUNT_FIELDS, Counts
from instep.domain.instances import InstanceState
from instep.domain.jobs import Claim, Job, JobPart, JobState, SliceState, half_ids, tries_of
from instep.domain.manifest import decode_changes
from instep.domain.refs import PartitionRef, generation_text
from instep.domain.retries import SUSPECT_ATTEMPTS
from instep.domain.waves import SliceOutcome
from instep.errors import Fenced, InstepError, UserError
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.failures import FailureRecord
from instep.ledger.ledger import Ledger
from instep.pipeline.outcomes import decode_outcome

from .documents import WRONG, Document, Poison, Rows, Source, id_of, rows_of
from .faults import Event, World
from .log import LogChecker
from .readers import ReadersChecker
from .scheduler import Process
from .target import Index, SimTarget
from .waiting import WaitingChecker

#: What can make a slice end badly without being at fault itself, as counted by the world.
BAD_ENDS = (
    *("crash before", "crash after", "pause before", "pause after", "kill from outside", "pause from outside"),
    *("spent before", "kill", "stall"),
)


class Checker:
    """Watches each call as it has its effect (`watch`), and looks at what is left in the end."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        target: SimTarget,
        sources: dict[str, Source],
        upstream: Mapping[str, tuple[str, ...]],
        timing: Timing,
    ) -> None:
        self._world = world
        self._stale = timing.stale
        self._ledger = ledger
        self._target = target
        self._sources = sources
        self._owners: dict[str, tuple[int, str]] = {}
        self._payloads: dict[str, bytes] = {}
        self._completed: dict[str, tuple[int, str]] = {}
        self._effects: dict[tuple[str, PartitionRef], Counts] = {}
        self._planned: dict[tuple[str, PartitionRef], int] = {}
        self._open: dict[tuple[str, PartitionRef], None] = {}
        self._heard: dict[str, float] = {}
        self._attempts: set[str] = set()
        self._finished: dict[str, int] = {}
        self._log = LogChecker(ledger, map(PartitionRef, sources), self.broken)
        self._waiting = WaitingChecker(ledger, upstream, self.broken)
        self._readers = ReadersChecker(ledger, target, self.broken)

    def broken(self, what: str) -> None:
        self._world.broken.append(f"at {self._world.scheduler.now / 1000:.1f} s: {what}")

    # While it runs.

    def watch(self, event: Event) -> None:
        if event.error is not None:
            if isinstance(event.error, Fenced):
                self._world.count(f"refused by {event.kind}")
            return
        look = _WATCHED.get(event.name)
        if look is not None:
            look(self, event)

    def _plans(self, event: Event) -> None:
        job_id: str = event.args[0]
        for new in event.args[1]:
            self._planned[job_id, new.part.ref] = sum(each.units for each in new.slices)
            self._open[job_id, new.part.ref] = None
            self._waiting.planned(new)

    def _extends(self, event: Event) -> None:
        part, slices = event.args
        self._planned[event.kwargs["job_id"], part.ref] += sum(each.units for each in slices)

    def _claimed(self, event: Event) -> None:
        claims: list[Claim] = event.result
        worker: str = event.args[2]
        for claim in claims:
            name, fence = claim.slice_id, claim.fence
            before = [self._owners[each] for each in (name, *_ancestors_of(name)) if each in self._owners]
            if any(fence <= old for old, _ in before):
                self.broken(f"slice {name} was claimed under fence {fence} again (before: {before})")
            if before and before[0][1] != worker:
                self._world.count("takeovers")
            if name in self._completed:
                self.broken(f"slice {name} was claimed after it was completed")
            self._owners[name] = fence, worker
            self._payloads[name] = claim.payload

    def _completes(self, event: Event) -> None:
        part: JobPart = event.args[0]
        worker: str = event.args[1]
        outcomes: Sequence[SliceOutcome] = event.args[2]
        job_id: str = event.kwargs["job_id"]
        for outcome in outcomes:
            name, here = outcome.slice_id, (outcome.fence, worker)
            if self._completed.get(name) == here:
                continue
            if name in self._completed:
                self.broken(f"slice {name} was completed by {here} and by {self._completed[name]}")
            elif self._owners.get(name) != here:
                self.broken(f"slice {name} was completed by {here}, but is held by {self._owners.get(name)}")
            self._completed[name] = here
            self._demand_committed(part, outcome)
            key = job_id, part.ref
            self._effects[key] = self._effects.get(key, Counts()) + outcome.counts

    def _demand_committed(self, part: JobPart, outcome: SliceOutcome) -> None:
        index = self._target.indexes.get(part.physical)
        marks = [
            note.marks[outcome.slice_id]
            for note in (index.notes if index else ())
            if note.attempt is not None and outcome.slice_id in note.marks
        ]
        if not marks:
            self.broken(f"slice {outcome.slice_id} was completed without a commit in the target")
        elif decode_outcome(marks[-1].outcome, fence=0).counts != outcome.counts:
            self.broken(f"slice {outcome.slice_id} was counted otherwise than it was committed")

    def _committed(self, event: Event) -> None:
        """Once a part is finished, what its target holds is settled: no worker commits under its epoch any more."""
        physical, epoch, attempt = event.args[0], event.kwargs["epoch"], event.kwargs["attempt"]
        if attempt not in self._attempts and epoch <= self._finished.get(physical, 0):
            self.broken(f"{physical}: a commit under epoch {epoch} landed after its part was finished")
        if attempt not in self._attempts:
            self._waiting.committed(physical)
        self._attempts.add(attempt)

    def _finishes(self, event: Event) -> None:
        part: JobPart = event.args[1]
        self._open.pop((event.args[0], part.ref), None)
        self._demand_not_given_up(event.args[0], part)
        if event.args[2] is JobState.FAILED and not event.kwargs.get("promote"):
            return  # What it built is dropped, or is mended by the job that follows.
        self._finished[part.physical] = max(part.epoch, self._finished.get(part.physical, 0))

    def _demand_not_given_up(self, job_id: str, part: JobPart) -> None:
        """What the target has was not given up: counts would say that it failed, and that nothing was written."""
        records = self._ledger.failures.newest(part.ref, limit=10_000)
        mine = [each for each in records if each.job_id == job_id and each.stage == "wave"]
        # Of another version the job may have had it before.
        given_up = {(each.document_id, each.version) for each in mine}
        index = self._target.indexes.get(part.physical)
        if not given_up or not index:
            return
        committed = {name for note in index.notes if note.attempt is not None for name in note.marks}
        for name in sorted(each for each in committed if each.startswith(f"{job_id}.")):
            for change in decode_changes(self._payloads[name]):
                if (change.document_id, change.version) in given_up:
                    self.broken(f"{change.uri} was given up, and slice {name} with it is committed")

    def _promoted(self, event: Event) -> None:
        alias, physical, epoch = event.args
        if self._target.served(alias) != physical:
            return  # An older epoch: nothing happened.
        for job_id in [job_id for job_id, ref in self._open if ref.entity == alias.split("@")[0]]:
            job = self._ledger.jobs.get(job_id)
            for status in job.parts if job else ():
                part = status.part
                here = part.physical == physical and part.epoch == epoch
                if here and status.state is None:
                    if status.unfinished_slices:
                        self.broken(f"{physical} was promoted with open slices in job {job_id}")
                    self._loses_nothing(part)

    def _loses_nothing(self, part: JobPart) -> None:
        """It is about to replace what the ledger says is served: what that has as the source has it, it has too."""
        checkpoint = self._ledger.checkpoints.get(part.ref, part.generation)
        if checkpoint is None or not part.fresh or checkpoint.instance == part.instance:
            return
        documents = self._sources[part.ref.entity].documents
        old, new = self._ledger.documents.entries(checkpoint.instance), self._ledger.documents.entries(part.instance)
        there = [each for each in old.values() if each.uri in documents]
        kept = [each for each in there if str(documents[each.uri].version) == each.version]
        lost = [each.uri for each in kept if each.uri not in new]
        if 2 * len(kept) >= len(there) and 20 * len(lost) > len(kept) and 20 * len(lost) > len(lost) + len(new):
            self.broken(f"{part.physical} was promoted without {lost}, which are served")

    def _dropped(self, event: Event) -> None:
        physical = event.args[0]
        if any(served == physical for _, served in self._target.aliases.values()):
            self.broken(f"{physical} was dropped while it is served")

    def _beats(self, event: Event) -> None:
        self._heard[event.args[0]] = event.at

    def _swept(self, event: Event) -> None:
        for worker in event.result.workers:
            silent = event.at - self._heard[worker]
            if silent < self._stale:
                self.broken(f"worker {worker} was evicted though it was heard of {silent} ms ago")
        if event.result.workers or event.result.slices or event.result.jobs:
            self._world.count("sweeps that found something")

    def _split(self, event: Event) -> None:
        if event.result:
            self._world.count("splits")

    def _adopted(self, event: Event) -> None:
        self._world.count("resumed parts")

    # In the end.

    def histories(self, processes: Iterable[Process]) -> None:
        """What each index was told, in order, and how the processes ended."""
        every = [*self._target.indexes.items(), *self._target.dropped]
        for physical, index in every:
            self._commits(physical, index)
        for process in processes:
            if process.error is not None and not isinstance(process.error, InstepError):
                self.broken(f"{process.name} ended with {process.error!r}")

    def _commits(self, physical: str, index: Index) -> None:
        """Each slice is committed once, and never under an epoch or a fence that was superseded by then."""
        epoch, fences = 0, dict[str, int]()
        committed: set[str] = set()
        for note in index.notes:
            if note.epoch < epoch:
                self.broken(f"{physical}: epoch {note.epoch} was accepted after {epoch}")
            epoch = max(epoch, note.epoch)
            for name, mark in note.marks.items():
                if mark.fence < fences.get(name, 0):
                    self.broken(f"{physical}: fence {mark.fence} of {name} was accepted after {fences[name]}")
                fences[name] = max(mark.fence, fences.get(name, 0))
            if note.attempt is None:
                continue
            for name in note.marks:
                if name in committed:
                    self.broken(f"{physical}: {name} was committed twice")
                if any(half in committed for half in half_ids(name)):
                    self.broken(f"{physical}: {name} was committed after its half")
                if any(each in committed for each in _ancestors_of(name)):
                    self.broken(f"{physical}: {name} was committed after what it was split from")
                committed.add(name)

    def to_be_done(self, refs: set[PartitionRef]) -> bool:
        """Whether those who are there, for these partitions, can do something."""
        return bool(self._waiting.workable(self._ledger.open_parts.on(refs), refs)) or self._waiting.missed(refs)

    def at_rest(self, processes: Sequence[Process]) -> None:
        """After the faults, before anything is mended: what is served is what the ledger says is there."""
        self._log.check()
        if not self._world.broken:  # A log that does not lead to what is stored names what is not there.
            self._waiting.check()
        promotions = [each for each in processes if each.name.startswith("promote")]
        late = self._world.counters.get("late") or self._world.counters.get("twice")
        # The next run completes what was cut short, or was said to have failed and then came.
        half_done = bool(promotions) and bool(late or not all(map(_told, promotions)))
        for ref, generations in self._generations().items():
            settled = [
                generation
                for generation in generations
                if self._ledger.jobs.unfinished(ref, generation) is None and not self._given_up(ref, generation)
            ]
            for generation in settled:
                self._served(ref, generation)
            if settled == generations and not half_done:
                self._readers.check(ref)

    def _generations(self) -> dict[PartitionRef, list[str]]:
        """Of each partition those that there are, and that without a name."""
        refs = [PartitionRef(name) for name in self._sources]
        return {
            ref: sorted({"", *(each.generation for each in self._ledger.instances.newest(ref, 1_000))}) for ref in refs
        }

    def _given_up(self, ref: PartitionRef, generation: str) -> bool:
        """Whether the last job on it was given up: what it had committed by then is only recorded by the next one."""
        parts = [status for job in self._ledger.jobs.newest(100) for status in job.parts if status.part.ref == ref]
        ends = [status for status in parts if status.part.generation == generation]
        return bool(ends) and ends[0].state is JobState.FAILED and not ends[0].part.fresh

    def final(self) -> None:
        """After a last run found nothing to do: everything is in the target, once, or in the failure list."""
        self._log.check()
        self._log.fulfilled()
        if not self._world.broken:
            self._waiting.check()
            self._waiting.ended()
        for kind in self._log.kinds():
            self._world.count(kind)
        for ref, generations in self._generations().items():
            self._readers.check(ref)
            if self._ledger.partitions.promoted(ref) is None and self._sources[ref.entity].truth():
                self._first_failed(ref)
            for generation in generations:
                self._complete(ref, generation)
        for job in self._ledger.jobs.newest(1_000):
            self._ended(job)

    def _first_failed(self, ref: PartitionRef) -> None:
        current = self._ledger.instances.canonical(ref)
        if current is not None and self._waiting.in_vain(current):
            return
        failed = {each.document_id for each in self._ledger.failures.newest(ref, limit=10_000)}
        if self._sources[ref.entity].truth(lambda each: id_of(each.uri) not in failed):
            self.broken(f"{ref} has documents and is not served")

    def _complete(self, ref: PartitionRef, generation: str) -> None:
        """What is built of a generation is all that the source holds now, but for what is in the failure list."""
        source = self._sources[ref.entity]
        records = [each for each in self._ledger.failures.newest(ref, limit=10_000) if each.generation == generation]
        failed = {each.document_id for each in records}
        checkpoint = self._served(ref, generation)
        if checkpoint is not None and self._held_back(checkpoint, source, failed):
            self._world.count("held back")
            return
        self._failures(source, records)
        if checkpoint is not None:
            self._truth(source, self._target.indexes[checkpoint.physical].stored(), failed)

    def _served(self, ref: PartitionRef, generation: str) -> Checkpoint | None:
        checkpoint = self._ledger.checkpoints.get(ref, generation)
        if not self._readers.finds(ref, generation, checkpoint) or checkpoint is None:
            return None
        stored = self._target.indexes[checkpoint.physical].stored()
        expected: Rows = Counter()
        versions = self._sources[ref.entity].versions
        current = self._ledger.instances.canonical(ref, generation)
        left = current is None or current.uuid != checkpoint.instance
        for entry in self._ledger.documents.entries(checkpoint.instance).values():
            known = versions.get((entry.uri, entry.version))
            rows = rows_of(known) if known else Counter()
            expected += self._as_a_look_left_it(entry.uri, stored, versions, rows) if left else rows
        self._compare(f"{generation_text(ref, generation)} against its manifest", stored, expected)
        return checkpoint

    @staticmethod
    def _as_a_look_left_it(
        uri: str, stored: Rows, versions: Mapping[tuple[str, str], Document], recorded: Rows
    ) -> Rows:
        """Of what is served only until its successor is there: who dies while it brings that up to date has written a
        version that is not recorded, and no job brings it up to date after that.
        """
        there = Counter({row: number for row, number in stored.items() if row[0] == id_of(uri)})
        others = (rows_of(each) for (of, _), each in versions.items() if of == uri)
        return there if not there or there in others else recorded

    def _held_back(self, checkpoint: Checkpoint, source: Source, failed: set[str]) -> bool:
        """Whether a new build is not tried again, what is served growing old. There must be a reason."""
        current = self._ledger.instances.canonical(checkpoint.ref, checkpoint.generation)
        if current is not None and self._waiting.in_vain(current):
            self._world.count("upstream held back")
            return True
        if current is None or current.state is not InstanceState.MISSING:
            return False
        entries = self._ledger.documents.entries(checkpoint.instance)
        there = [each.document_id for uri, each in entries.items() if uri in source.documents]
        if there and not failed.intersection(there):
            self.broken(f"{checkpoint.ref} is not rebuilt, and nothing would be lost by it")
        return True

    def _truth(self, source: Source, stored: Rows, failed: set[str]) -> None:
        good = Counter({row: number for row, number in stored.items() if row[0] not in failed})
        truth = Counter({row: number for row, number in source.truth().items() if row[0] not in failed})
        self._compare("the target against the source", good, truth)
        known: dict[str, list[Document]] = {}
        for document in source.versions.values():
            known.setdefault(id_of(document.uri), []).append(document)
        for identity in failed:
            rows = Counter({row: number for row, number in stored.items() if row[0] == identity})
            if rows and not any(rows == rows_of(each) for each in known[identity]):
                self.broken(f"rows of failed document {known[identity][0].uri} are of no version of it")

    def _compare(self, what: str, stored: Rows, expected: Rows) -> None:
        lost, surplus = expected - stored, stored - expected
        double = [row for row in surplus if row in expected]
        stale = [row for row in surplus if row not in expected]
        if lost or surplus:
            self.broken(f"{what}: lost {_texts(lost)}, double {_texts(double)}, stale or orphaned {_texts(stale)}")

    def _failures(self, source: Source, records: Sequence[FailureRecord]) -> None:
        bad_ends = sum(self._world.counters.get(each, 0) for each in BAD_ENDS)
        if any(each.poison in (Poison.KILLS, Poison.RAISES) for each in source.versions.values()):
            bad_ends += SUSPECT_ATTEMPTS  # It spent its neighbours' attempts, until they were run alone.
        for record in records:
            document = source.documents.get(record.uri)
            if document is None or str(document.version) != record.version:
                self.broken(f"{record.uri} is in the failure list at a version that is gone")
            elif document.poison is None and not document.fails_under(WRONG) and bad_ends < tries_of(1):
                self.broken(f"{record.uri} is in the failure list and nothing is wrong with it: {record.reason}")

    def _ended(self, job: Job) -> None:
        if not job.state.ended or (job.state is JobState.STOPPED and job.parts):
            self.broken(f"job {job.id} has not ended: {job.state}")
        for status in job.parts:
            name = f"job {job.id}, {status.part.ref}"
            if status.state is None and job.state is not JobState.STOPPED:
                self.broken(f"{name}: its part is open")
            if not status.counts.balanced:
                self.broken(f"{name}: its counts are not balanced: {status.counts}")
            finished = status.state in (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS)
            planned = self._planned[job.id, status.part.ref]
            if finished and status.counts.read != planned:
                self.broken(f"{name}: {status.counts.read} units were read of {planned}")
            effects = self._effects.get((job.id, status.part.ref), Counts())
            # A slice that was given up has read and failed, and has had no effect.
            given_up = status.counts.failed - effects.failed
            if _without(status.counts, given_up) != effects or (given_up and not _may_give_up(status.slices)):
                self.broken(f"{name}: counted {status.counts}, but the effects were {effects}")


def _told(process: Process) -> bool:
    """Whether a promotion was told how it went: done, or refused before anything was done."""
    return process.result is not None or isinstance(process.error, UserError)


def _ancestors_of(slice_id: str) -> tuple[str, ...]:
    """Ids of the slices that this one was split from, the nearest first."""
    whole = slice_id.rstrip("ab")
    return tuple(slice_id[:length] for length in range(len(slice_id) - 1, len(whole) - 1, -1))


def _without(counts: Counts, given_up: int) -> Counts:
    values = {name: getattr(counts, name) for name in COUNT_FIELDS}
    values["read"] -= given_up
    values["failed"] -= given_up
    return Counts(**values)


def _may_give_up(slices: Any) -> bool:
    return bool(slices.get(SliceState.FAILED, 0))


def _texts(rows: Iterable[tuple[str, int, str]]) -> list[str]:
    return sorted(text for _, _, text in rows)


_WATCHED: dict[str, Any] = {
    "parts.plan": Checker._plans,
    "parts.extend": Checker._extends,
    "slices.claim": Checker._claimed,
    "slices.complete": Checker._completes,
    "promote": Checker._promoted,
    "commit": Checker._committed,
    "parts.finish": Checker._finishes,
    "drop": Checker._dropped,
    "sweep": Checker._swept,
    "workers.register": Checker._beats,
    "workers.heartbeat": Checker._beats,
    "slices.split": Checker._split,
    "parts.adopt": Checker._adopted,
}
