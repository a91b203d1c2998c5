"""Seeded bugs: the product with one thing taken out of it. The simulator must notice each of them.

The bugs of ledgers are put into its model. Not among them: a heartbeat that never gives up. What it
keeps a worker from, claims and fences refuse as well; `tests/jobs/test_heartbeat.py` looks after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import pytest

from instep.bus.bus import Inbox, Message
from instep.domain.jobs import JobState, SliceState, end_of_part
from instep.domain.manifest import decode_changes, encode_changes
from instep.domain.retries import halves as halves_of
from instep.errors import Conflict, Fenced, Transient, Unknown
from instep.jobs import finish as promotion
from instep.jobs import wave, worker
from instep.jobs.slice_claims import SliceClaims
from instep.jobs.wave import WaveRunner
from instep.jobs.worker import Worker
from instep.ledger.sweep import Swept
from instep.planning.loaded import Loaded
from instep.requests import messages
from instep.requests.messages import Messages
from tests.simulator.model import leases, moves, parts, recovery, slices
from tests.simulator.model.tables import Tables

from . import target as sim_target
from .exhaustive import Scope
from .faults import Fault, Weather
from .target import SimTarget

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutation:
    """What shows it soon, where chance would take long to: a small `scope`, or schedules with some `weather`."""

    name: str
    apply: Callable[[Patch], None]
    scope: Scope | None = None
    weather: Weather | None = None


ALL: list[Mutation] = []
Apply = Callable[[Patch], None]


def seeded_bug(apply: Apply) -> Apply:
    ALL.append(Mutation(apply.__name__, apply))
    return apply


def seeded_bug_in(scope: Scope) -> Callable[[Apply], Apply]:
    def add(apply: Apply) -> Apply:
        ALL.append(Mutation(apply.__name__, apply, scope))
        return apply

    return add


def seeded_bug_when(*calls: str, go: Sequence[Fault]) -> Callable[[Apply], Apply]:
    """Where these calls go wrong in these ways."""

    def add(apply: Apply) -> Apply:
        ALL.append(Mutation(apply.__name__, apply, weather=Weather(frozenset(calls), tuple(go))))
        return apply

    return add


#: An effect that comes when others have gone on.
_LATER = (Fault.PAUSE_BEFORE, Fault.LATE, Fault.TWICE)

# Ledger.


@seeded_bug_when("slices.complete", "commit", go=_LATER)
def complete_without_the_fence(patch: Patch) -> None:
    def complete(tables: Tables, part: Any, worker_id: str, outcomes: Sequence[Any], *, job_id: str) -> None:
        known = [(each, tables.slices[each.slice_id]) for each in outcomes if each.slice_id in tables.slices]
        for outcome, row in known:
            if row.state is SliceState.PROCESSING:
                assert row.worker_id is not None
                original(tables, part, row.worker_id, [replace(outcome, fence=row.fence)], job_id=job_id)

    original = slices.complete
    patch.setattr(slices, "complete", complete)


@seeded_bug
def a_message_is_acknowledged_before_it_is_stored(patch: Patch) -> None:
    store = Messages._store

    def first(self: Messages, inbox: Inbox, message: Message) -> None:
        inbox.ack(message)
        store(self, inbox, message)

    patch.setattr(Messages, "_store", first)


@seeded_bug
def a_message_that_is_delivered_twice_makes_two_wants(patch: Patch) -> None:
    drawn = Random(1)
    patch.setattr(messages, "uuid5", lambda *_: f"{drawn.getrandbits(64):x}")


@seeded_bug
def claim_without_a_new_fence(patch: Patch) -> None:
    def claim(tables: Tables, *args: Any, **kwargs: Any) -> list[Any]:
        claims = []
        for each in original(tables, *args, **kwargs):
            row = tables.slices[each.slice_id]
            row.fence = max(1, row.fence - 1)
            claims.append(replace(each, fence=row.fence))
        return claims

    original = slices.claim
    patch.setattr(slices, "claim", claim)


@seeded_bug_when("commit", "slices.complete", "promote", "parts.finish", go=[Fault.SLOW_BEFORE, Fault.PAUSE_BEFORE])
def lease_taken_from_its_holder(patch: Patch) -> None:
    def is_kept(tables: Tables, row: Any) -> bool:
        return False

    patch.setattr(leases, "is_kept", is_kept)


@seeded_bug_in(Scope(attempts=2, stalls=1, switches=1))
def lease_with_the_same_epoch_again(patch: Patch) -> None:
    def grant(tables: Tables, ref: Any, row: Any, job_id: str) -> Any:
        row.epoch = max(0, row.epoch - 1)
        return original(tables, ref, row, job_id)

    original = leases._grant
    patch.setattr(leases, "_grant", grant)


@seeded_bug_when("slices.claim", go=[Fault.LOST, Fault.CRASH_AFTER])
def heartbeat_keeps_slices_that_no_thread_runs(patch: Patch) -> None:
    def heartbeat(tables: Tables, worker_id: str, running: Any) -> int:
        tables.worker(worker_id).heartbeat_at = tables.now()
        return 0

    patch.setattr(recovery, "heartbeat", heartbeat)


@seeded_bug
def heartbeat_gives_back_what_runs(patch: Patch) -> None:
    original = recovery.heartbeat
    patch.setattr(recovery, "heartbeat", lambda tables, worker_id, running: original(tables, worker_id, ()))


@seeded_bug
def sweep_evicts_the_living(patch: Patch) -> None:
    def sweep(tables: Tables) -> Any:
        for row in tables.workers.values():
            row.heartbeat_at -= tables.timing.stale - tables.timing.heartbeat // 2
        return original(tables)

    original = recovery.sweep
    patch.setattr(recovery, "sweep", sweep)


@seeded_bug
def sweep_leaves_the_silent_alone(patch: Patch) -> None:
    patch.setattr(recovery, "sweep", lambda tables: Swept())


@seeded_bug
def attempts_begin_again_with_each_claim(patch: Patch) -> None:
    def claim(tables: Tables, *args: Any, **kwargs: Any) -> list[Any]:
        claims = original(tables, *args, **kwargs)
        for each in claims:
            tables.slices[each.slice_id].attempts = 0
        return claims

    original = slices.claim
    patch.setattr(slices, "claim", claim)


@seeded_bug_in(Scope(attempts=3, crashes=1))
def what_is_taken_from_the_dead_is_failed_at_once(patch: Patch) -> None:
    """A bug that was there."""

    def bad_end(tables: Tables, row: Any, error: str) -> None:
        row.attempts += 1
        if row.worn_out:
            slices._take_apart(tables, row, delay=0)
        else:
            slices.to_pending(tables, row)

    patch.setattr(slices, "bad_end", bad_end)


@seeded_bug
def halves_begin_at_fence_zero(patch: Patch) -> None:
    def replace_by(tables: Tables, whole: Any, pieces: Any, **kwargs: Any) -> None:
        whole.fence = 0
        original(tables, whole, pieces, **kwargs)

    original = slices._replace_by
    patch.setattr(slices, "_replace_by", replace_by)


@seeded_bug
def a_half_is_cut_anew_and_loses_a_document(patch: Patch) -> None:
    def halves(whole: Any) -> Any:
        cut = original(whole)
        if cut is None:
            return None
        changes = decode_changes(cut[1].payload)[1:]
        return cut[0], replace(cut[1], units=len(changes), payload=encode_changes(changes))

    original = halves_of
    patch.setattr(slices, "halves", halves)


@seeded_bug
def counts_are_added_when_repeated(patch: Patch) -> None:
    def complete(tables: Tables, part: Any, worker_id: str, outcomes: Sequence[Any], *, job_id: str) -> None:
        for each in outcomes:
            if slices._is_replay(tables, each, worker_id):
                tables.part_of(tables.slices[each.slice_id]).counts += each.counts
        original(tables, part, worker_id, outcomes, job_id=job_id)

    original = slices.complete
    patch.setattr(slices, "complete", complete)


@seeded_bug
def a_stop_cancels_what_is_pending(patch: Patch) -> None:
    def stop(tables: Tables, job: Any) -> None:
        for ref in job.parts:
            slices.cancel_open(tables, job.id, ref)
        original(tables, job)

    original = moves.stop
    patch.setattr(moves, "stop", stop)


@seeded_bug
def a_stop_never_ends(patch: Patch) -> None:
    patch.setattr(moves, "stop", lambda tables, job: None)


@seeded_bug
def a_part_ends_with_open_slices(patch: Patch) -> None:
    def begin_finish(tables: Tables, job_id: str, ref: Any, worker_id: str) -> bool:
        job = tables.jobs.get(job_id)
        row = job.parts.get(ref) if job else None
        return row is not None and row.state is None

    def end(states: Any, counts: Any) -> JobState:
        return end_of_part(states, counts) or JobState.COMPLETED

    def advance(self: Any, each: Any) -> Any:
        return original(self, replace(each, pending=0 if each.head and each.pending == 1 else each.pending))

    original = Worker._advance
    patch.setattr(Worker, "_advance", advance)
    patch.setattr(parts, "begin_finish", begin_finish)
    patch.setattr(parts, "_demand_finish", lambda *args, **kwargs: None)
    patch.setattr(promotion, "end_of_part", end)


@seeded_bug
def the_finisher_keeps_its_part_for_ever(patch: Patch) -> None:
    """A bug that was there, and that the simulator found."""

    def begin_finish(tables: Tables, job_id: str, ref: Any, worker_id: str) -> bool:
        job = tables.jobs.get(job_id)
        row = job.parts.get(ref) if job else None
        if row is not None and row.finisher not in (None, worker_id):
            return False
        return original(tables, job_id, ref, worker_id)

    def adopt(tables: Tables, lease: Any) -> Any:
        row = tables.jobs[lease.job_id].parts.get(lease.ref) if lease.job_id in tables.jobs else None
        finisher = row.finisher if row else None
        part = adopted(tables, lease)
        if row:
            row.finisher = finisher
        return part

    original, adopted = parts.begin_finish, parts.adopt
    patch.setattr(parts, "begin_finish", begin_finish)
    patch.setattr(parts, "adopt", adopt)


@seeded_bug
def a_planning_worker_that_dies_leaves_its_job_open(patch: Patch) -> None:
    def sweep(tables: Tables) -> Any:
        open_jobs = [job for job in tables.jobs.values() if job.state is JobState.INITIALIZING]
        for job in open_jobs:
            job.workers.add("unknown")
        try:
            return original(tables)
        finally:
            for job in open_jobs:
                job.workers.discard("unknown")

    original = recovery.sweep
    patch.setattr(recovery, "sweep", sweep)


# Service.


@seeded_bug
def the_ledger_is_told_before_the_target(patch: Patch) -> None:
    def commit(self: Any, run: Any, tasks: Any, outcomes: Any) -> None:
        self._claims.complete(outcomes)
        original(self, run, tasks, outcomes)

    original = WaveRunner._commit
    patch.setattr(WaveRunner, "_commit", commit)


@seeded_bug
def the_ledger_is_told_beside_the_target(patch: Patch) -> None:
    def commit(self: Any, run: Any, tasks: Any, outcomes: Any) -> None:
        told = self._context.background.beside(partial(self._claims.complete, outcomes), "told")
        original(self, run, tasks, outcomes)
        told()

    original = WaveRunner._commit
    patch.setattr(WaveRunner, "_commit", commit)


@seeded_bug_when("commit", go=[Fault.LOST, Fault.CRASH_AFTER])
def earlier_commits_are_not_looked_up(patch: Patch) -> None:
    patch.setattr(SimTarget, "committed", lambda *args: {})


@seeded_bug_in(Scope(attempts=3, crashes=1))
def what_is_worn_out_is_given_up_without_a_look(patch: Patch) -> None:
    def attempt(self: Any, claims: Any, progress: Any) -> None:
        original(self, self._claims.fail_worn_out(claims), progress)

    original = WaveRunner._attempt
    patch.setattr(WaveRunner, "_attempt", attempt)


@seeded_bug_in(Scope(attempts=3, stalls=1, switches=1))
def what_is_worn_out_is_given_up_without_a_fence(patch: Patch) -> None:
    def fences(claims: Any) -> Any:
        return original([claim for claim in claims if not claim.worn_out])

    original = wave._fences
    patch.setattr(wave, "_fences", fences)


@seeded_bug_in(Scope(stalls=1, switches=1))
def suspects_are_not_fenced_in_the_target(patch: Patch) -> None:
    patch.setattr(wave, "_fences", lambda claims: [])


@seeded_bug_in(Scope(stalls=1, switches=1))
def suspects_are_fenced_after_the_look_up(patch: Patch) -> None:
    def not_yet_committed(self: Any, claims: Any, progress: Any) -> Any:
        setup, found = self._setup, {}
        suspects = [claim.slice_id for claim in claims if claim.fence > 1]
        if suspects:
            found = setup.target.committed(self._part.physical, self._part.base, suspects)
        self._setup = replace(setup, target=_Answering(setup.target, found))
        try:
            return original(self, claims, progress)
        finally:
            self._setup = setup

    original = WaveRunner._not_yet_committed
    patch.setattr(WaveRunner, "_not_yet_committed", not_yet_committed)


class _Answering:
    """A target whose look-up was answered before."""

    def __init__(self, inner: Any, found: Any) -> None:
        self._inner = inner
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def committed(self, *args: Any) -> Any:
        return self._found


@seeded_bug_in(Scope(stalls=1, switches=1))
def claims_are_not_looked_at_before_the_commit(patch: Patch) -> None:
    patch.setattr(SliceClaims, "demand", lambda self, claims: None)


@seeded_bug_when("commit", go=[Fault.NOTHING])
def an_unknown_commit_counts_as_done(patch: Patch) -> None:
    def commit(self: Any, *args: Any) -> None:
        try:
            original(self, *args)
        except (Transient, Unknown):
            return

    original = WaveRunner._commit
    patch.setattr(WaveRunner, "_commit", commit)


@seeded_bug_when("commit", go=[Fault.LOST])
def an_unknown_commit_is_tried_as_a_new_attempt(patch: Patch) -> None:
    def commit(self: Any, run: Any, tasks: Any, outcomes: Any) -> None:
        again = replace(run, id=self._context.ids.new())
        attempts = [run, again]

        def target_commit(physical: str, *, attempt: str, **kwargs: Any) -> Any:
            return inner.commit(physical, attempt=attempts.pop(0).id if attempts else attempt, **kwargs)

        inner = self._setup.target
        self._setup = replace(self._setup, target=_Committing(inner, target_commit))
        try:
            original(self, run, tasks, outcomes)
        finally:
            self._setup = replace(self._setup, target=inner)

    original = WaveRunner._commit
    patch.setattr(WaveRunner, "_commit", commit)


class _Committing:
    def __init__(self, inner: Any, commit: Any) -> None:
        self._inner = inner
        self.commit = commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@seeded_bug_when("promote", "parts.finish", go=[Fault.CRASH_BEFORE, Fault.PAUSE_BEFORE, Fault.REFUSED])
def the_checkpoint_moves_before_the_alias(patch: Patch) -> None:
    """The alias is moved last, when the books say already that it was."""

    def finish(setup: Any, lease: Any, context: Any, **kwargs: Any) -> Any:
        late = _Late(setup.target)
        notes = original(replace(setup, target=late), lease, context, **kwargs)
        for alias, physical, epoch in late.promoted:
            setup.target.promote(alias, physical, epoch)
        return notes

    original = promotion.finish
    patch.setattr(worker, "finish", finish)


class _Late:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.promoted: list[tuple[str, str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def promote(self, *args: Any) -> None:
        self.promoted.append(args)


# Target.


@seeded_bug_when("promote", go=[Fault.LATE, Fault.TWICE])
def an_older_promotion_overrides_a_newer_one(patch: Patch) -> None:
    def promote(self: SimTarget, alias: str, physical: str, epoch: int) -> None:
        self.aliases[alias] = (epoch, physical)

    patch.setattr(SimTarget, "promote", promote)


@seeded_bug
def the_target_forgets_epochs(patch: Patch) -> None:
    patch.setattr(sim_target, "_refuse_older_epoch", lambda index, epoch: None)


@seeded_bug_when("commit", go=[Fault.PAUSE_BEFORE])
def the_target_forgets_fences(patch: Patch) -> None:
    patch.setattr(sim_target, "_refuse_older_fences", lambda notes, marks: None)


@seeded_bug_when("commit", go=[Fault.LOST, Fault.LATE, Fault.TWICE])
def an_attempt_is_committed_again(patch: Patch) -> None:
    def commit(self: SimTarget, physical: str, *, attempt: str, **kwargs: Any) -> int:
        self.commits = getattr(self, "commits", 0) + 1  # type: ignore[attr-defined]  # the bug's own
        try:
            attempt = f"{attempt}/{self.commits}"  # type: ignore[attr-defined]  # the bug's own
            return original(self, physical, attempt=attempt, **kwargs)
        except (Conflict, Fenced):
            return self.indexes[physical].version

    original = SimTarget.commit
    patch.setattr(SimTarget, "commit", commit)


@seeded_bug
def an_older_process_builds_back(patch: Patch) -> None:
    patch.setattr(Loaded, "demand_newest", lambda *_: None)
