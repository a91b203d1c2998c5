"""Live refresh: apply changes of the source to the served index while its replacement is built, and to the replacement
before it is served.

For the new instance these changes are ordinary slices of the same job. For the served one there are none: after a
crash, the next look at the source finds the rest. The job holds the partition's lease, so no other process writes to
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from instep.domain.counts import Counts
from instep.domain.fingerprint import changed_parts
from instep.domain.jobs import Claim, JobPart, SlicePlan
from instep.domain.manifest import Action, ManifestEntry, fields_of, lost_by
from instep.domain.planning import tasks_of
from instep.domain.promotion_rules import Loss
from instep.domain.texts import cleaned
from instep.domain.waves import SliceOutcome, Wave, WaveSlice
from instep.entities.setup import EntitySetup
from instep.errors import Fenced, UserError
from instep.jobs.heartbeat import Heartbeat
from instep.ledger.ledger import Ledger
from instep.planning.context import Context

#: Seconds between two refreshes of the served index. A refresh that takes long is followed by a longer pause.
LOOK_SECONDS = 60.0
_PAUSES_PER_LOOK: Final = 10

#: Looks at the source before a new instance is served: a source that changes all the time must not delay it for ever.
_LAST_LOOKS: Final = 3


@dataclass
class LiveRefresh:
    """The live refresh of one part of a job. `led`: the epoch under which this worker began the part, if it did. Under
    any other epoch the served index is left as it is: a document may have killed the first worker, and without slices
    there is no record of which one.
    """

    setup: EntitySetup
    context: Context
    job_id: str
    heartbeat: Heartbeat
    led: int | None
    #: Documents of this part that were listed, and gone when they were to be read: the next run looks again.
    unseen: set[str] = field(default_factory=set)
    _due: float | None = None
    _last_looks: int = 0

    def keep_served(self, part: JobPart) -> None:
        """Refresh the served index if it is due. An error in it does not stop the build."""
        if part.epoch != self.led:
            return
        began = self.context.clock.monotonic()
        if self._due is not None and began >= self._due:
            served = _served(self.setup, part, self.context.ledger)
            if served is not None and _made_alike(self.setup, served):
                try:
                    self._refresh(served)
                except Fenced:
                    raise
                except Exception as error:
                    said = f"the served index is not refreshed during the build: {cleaned(str(error))}"
                    self.context.progress.say(part.ref.label, said)
        now = self.context.clock.monotonic()
        if self._due is None or began >= self._due:
            self._due = now + max(LOOK_SECONDS, _PAUSES_PER_LOOK * (now - began))

    def catch_up(self, part: JobPart) -> int:
        """Extend the part by the changes of the source that its new instance lacks; returns how many. With any, the
        part has not ended. `part` is sealed. The served index is fenced first, so that no other worker keeps refreshing
        it: it is never ahead of its replacement.
        """
        served = _served(self.setup, part, self.context.ledger)
        if served is None or self._last_looks >= _LAST_LOOKS:
            return 0
        self._last_looks += 1
        if self.setup.target.exists(served.physical):
            self.setup.target.fence(served.physical, served.epoch)
        slices, seen = self.setup.changed_since(self.context.ledger, part, self.unseen)
        if slices:
            self.context.ledger.parts.extend(part, slices, job_id=self.job_id, seen=seen)
        return sum(each.units for each in slices)

    def _refresh(self, served: JobPart) -> None:
        slices, _ = self.setup.changed_since(self.context.ledger, served)
        most = self.setup.most_claims
        for start in range(0, len(slices), most):
            self._write(served, [self._slice(served, each) for each in slices[start : start + most]])

    def _slice(self, part: JobPart, plan: SlicePlan) -> WaveSlice:
        """A slice of the plan in the form of a claimed one."""
        claim = Claim(
            slice_id=f"{self.job_id}.served.{plan.index}",
            job_id=self.job_id,
            ref=part.ref,
            index=plan.index,
            bucket=plan.bucket,
            units=plan.units,
            work=plan.work,
            attempts=0,
            fence=1,
            rank=0,
            payload=plan.payload,
        )
        return self.setup.wave_slice(claim, lambda _: plan.changes)

    def _write(self, served: JobPart, slices: Sequence[WaveSlice]) -> None:
        context, setup = self.context, self.setup
        base = setup.target.fence(served.physical, served.epoch)
        choice = context.choose(setup, work := sum(each.work for each in slices))
        wave = Wave(
            context.ids.new(),
            served.ref,
            served.instance,
            served.physical,
            served.epoch,
            base,
            tuple(slices),
            tasks_of(work, choice.pace),
        )
        announced = _announced(slices)
        if announced:
            self._record(served, [SliceOutcome("", 0, Counts(), entries=announced)])
        engine = context.engine(choice)
        tasks = engine.run(wave, setup.program(served, wave, context.ledger, self.job_id))
        outcomes = [outcome for task in tasks for outcome in task.slices]
        self.heartbeat.require(served.ref)
        if refusal := setup.too_much(served, context.ledger, rows := sum(each.lost for each in outcomes)):
            raise UserError(refusal.why)
        units = sum(lost_by(each.changes) for each in slices)
        if lost := Loss(units, rows):
            context.ledger.losses.count(served, lost, job_id=self.job_id)
        staged = [task.staged for task in tasks if task.staged]
        setup.target.commit(served.physical, base=base, epoch=served.epoch, attempt=wave.id, staged=staged, marks=[])
        there = {each for outcome in outcomes for each in fields_of(outcome.entries)["document_id"]}
        unmet = [each.document_id for each in announced if each.document_id not in there]
        self._record(served, [SliceOutcome("", 0, Counts(), removed=unmet), *outcomes])

    def _record(self, served: JobPart, outcomes: Sequence[SliceOutcome]) -> None:
        self.context.ledger.documents.absorb(served, outcomes, job_id=self.job_id)


def _served(setup: EntitySetup, part: JobPart, ledger: Ledger) -> JobPart | None:
    """The part in the form of a refresh of the served index: of its own generation, or of the promoted one."""
    if not setup.staged(part):
        return None
    found = ledger.checkpoints.get(part.ref, part.generation)
    if found is None and (promoted := ledger.partitions.promoted(part.ref)) is not None:
        found = ledger.checkpoints.get(part.ref, promoted)
    if found is None:
        return None
    return replace(
        part,
        instance=found.instance,
        physical=found.physical,
        generation=found.generation,
        fingerprint=found.fingerprint,
        buckets=found.buckets,
        fresh=False,
    )


def _made_alike(setup: EntitySetup, served: JobPart) -> bool:
    """Whether chunker, embedder and transform are the same: results of different ones are not mixed in one index."""
    return served.buckets == setup.buckets and not changed_parts(setup.fingerprint, served.fingerprint)


def _announced(slices: Sequence[WaveSlice]) -> list[ManifestEntry]:
    """Manifest entries for documents that are not in the manifest yet, without known state: if they reach the target
    but are not recorded, the next look finds them changed or gone.
    """
    return [
        ManifestEntry(each.document_id, each.uri, 0, "", "", 0, each.bucket)
        for part in slices
        for each in part.changes
        if each.action is Action.INSERT
    ]
