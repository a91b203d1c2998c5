"""Start jobs for open wants that no worker serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from instep.domain.events import WantFailed
from instep.domain.refs import PartitionRef
from instep.domain.texts import cleaned
from instep.domain.wants import Want, WantState
from instep.errors import Conflict, Fenced, InstepError
from instep.jobs.job_spans import trace_of
from instep.jobs.job_starter import JobStarter, passes
from instep.jobs.restart_pauses import RestartPauses
from instep.ledger.ledger import Ledger
from instep.planning.plan import EntityPlan
from instep.planning.planner import Planner
from instep.planning.upstream import cancel_waits, in_hand


class WantScheduler(JobStarter):
    """Starts jobs for open wants, and resumes jobs, except those that a user has stopped."""

    def __init__(
        self,
        planner: Planner,
        pauses: RestartPauses | None = None,
        *,
        takes: Callable[[Want], bool] = lambda _: True,
        leaves: Callable[[PartitionRef], bool] = lambda _: False,
    ) -> None:
        """`takes`: the wants that it is for; `leaves`: the partitions that another one looks after."""
        super().__init__(planner, pauses)
        self._takes = takes
        self._leaves = leaves
        self._traces: dict[tuple[PartitionRef, str], str] = {}
        self._asking: dict[tuple[PartitionRef, str], list[str]] = {}

    def _due(self) -> list[tuple[PartitionRef, str]]:
        """The worker's partitions with an open want, and their generation; the oldest want first."""
        setups, ledger = self._planner.setups, self._context.ledger
        wants, now = [each for each in ledger.wants.startable(setups) if self._takes(each)], ledger.present()
        named = [
            (PartitionRef.parse(ref), each.generation) for each in wants if each.can_begin(now) for ref in each.refs
        ]
        self._traces = self._traces_of(wants)
        self._asking = {}
        for each in wants:
            for ref in each.refs:
                self._asking.setdefault((PartitionRef.parse(ref), each.generation), []).append(each.id)
        stopped = ledger.open_parts.wanted_stopped(setups)
        named += [key for key in stopped if not (self._leaves(key[0]) or self._rests(*key))]
        found = [key for key in dict.fromkeys(named) if key[0] in setups and not self._refusals.rests(*key)]
        # A part whose instance failed with its upstream may still be open when its partition is wanted again.
        busy = in_hand(ledger.open_parts.on({ref for ref, _ in found}), setups) if found else set()
        return [key for key in found if key[0] not in busy]

    def _rests(self, ref: PartitionRef, generation: str) -> bool:
        """Whether a pause holds the partition back: for ever after a user's stop, for a while after an error."""
        return self._pauses.why(self._planner.setups[ref], generation) is not None

    def _traces_of(self, wants: Sequence[Want]) -> dict[tuple[PartitionRef, str], str]:
        """The trace of the oldest want of each partition. A want made by a job belongs to that job's trace."""
        found: dict[tuple[PartitionRef, str], str] = {}
        for each in wants:
            trace = each.traceparent
            if not trace and each.derivative_of is not None:
                trace = trace_of(each.derivative_of, self._context.ledger)
            for ref in each.refs if trace else ():
                found.setdefault((PartitionRef.parse(ref), each.generation), trace)
        return found

    def _demand(self, keys: Iterable[tuple[PartitionRef, str]]) -> None:
        """Check that the wants are still open: one may have been canceled while the job was planned: its namespace was
        deleted, say. One that has failed for another of its partitions, in the hands of another worker, had asked for
        this one as well.
        """
        for ref, generation in keys:
            waiting = any(each.generation == generation for each in _waiting(self._context.ledger, [ref]))
            if not waiting and not self._failed(self._asking.get((ref, generation), ())):
                raise Fenced(f"{ref} is not wanted any more")

    def _failed(self, wants: Iterable[str]) -> bool:
        """Whether one of these wants has failed."""
        found = (self._context.ledger.wants.get(each) for each in wants)
        return any(each is not None and each.state is WantState.FAILED for each in found)

    def _asked_in(self, ref: PartitionRef, generation: str) -> str:
        return self._traces.get((ref, generation), "")

    def _idle(self, plan: EntityPlan) -> bool:
        """Cancel wants of jobs that wait for a partition with nothing to do. Whether there were any."""
        why = "; ".join(plan.found.why) or "it is wanted, and there is nothing to do"
        self._refusals.add(plan.ref, plan.generation, why)
        return cancel_waits(self._context.ledger, plan.ref, plan.generation, why)

    def _refused(self, ref: PartitionRef, generation: str, error: InstepError) -> None:
        """Spend an attempt of the wants on an error that a user has to mend, after which they pause or end. An outage
        spends none.
        """
        if not passes(error) and fail_wants(self._context.ledger, [ref], str(error), generation):
            self._context.progress.say(ref.label, str(error))
            self._moved = True
        else:
            super()._refused(ref, generation, error)


def fail_wants(ledger: Ledger, refs: Iterable[PartitionRef], error: str, generation: str | None = None) -> bool:
    """Spend an attempt of the wants that are due on partitions which cannot be planned; of one generation, or of all.
    Whether there were any.
    """
    found, now = False, ledger.present()
    for want in _waiting(ledger, refs):
        if want.can_begin(now) and generation in (None, want.generation):
            with suppress(Conflict):  # Another worker was faster, or has begun a job for it.
                ledger.events.append([WantFailed(want=want.id, error=cleaned(error))])
                found = True
    return found


def fail_wants_of(job_id: str, ref: PartitionRef, error: str, ledger: Ledger) -> None:
    """Spend an attempt of the wants on a partition whose job was stopped by an error with it, not by a user."""
    job = ledger.jobs.get(job_id)
    if job is None or job.stopped_by_people:
        return
    for want in ledger.wants.newest(ref=ref, open_only=True):
        with suppress(Conflict):  # It pauses, or waits for another job.
            ledger.events.append([WantFailed(want=want.id, error=cleaned(error), job=job_id)])


def _waiting(ledger: Ledger, refs: Iterable[PartitionRef]) -> Iterable[Want]:
    """The newest wants on each, and the one to begin first, however old."""
    found: dict[str, Want] = {}
    for ref in refs:
        wants = (*ledger.wants.startable([ref]), *ledger.wants.newest(ref=ref, open_only=True))
        found |= {each.id: each for each in wants}
    return found.values()
