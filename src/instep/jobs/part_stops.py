"""Stops of parts: what a worker does about a part that it cannot go on with, while the others of its job go on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from instep.domain.jobs import OpenPart
from instep.domain.refs import PartitionRef
from instep.domain.texts import cleaned
from instep.errors import Away, Conflict, Transient, Unknown, UserError
from instep.jobs.heartbeat import Kind
from instep.jobs.membership import Membership
from instep.jobs.retry import MEND, OUTAGE_SECONDS, RESUMES, Circuit, Circuits, Outage
from instep.jobs.want_scheduler import fail_wants_of
from instep.planning.context import Context
from instep.planning.upstream import PartKey, Setups


class PartStops:
    """Stops the parts that this process cannot go on with. A run gives such a part up, for the next run. A worker
    leaves it to others for a while, and stops it if there are none.
    """

    def __init__(
        self, setups: Setups, context: Context, kind: Kind, membership: Membership, circuits: Circuits
    ) -> None:
        self._setups = setups
        self._context = context
        self._kind = kind
        self._membership = membership
        self._circuits = circuits
        self._reported: dict[PartitionRef, str] = {}
        #: Parts whose last step lost a race.
        self._races: dict[PartKey, Circuit] = {}
        #: Errors of partitions that a run could not work on.
        self.problems: dict[PartitionRef, UserError] = {}

    def pauses(self, key: PartKey) -> bool:
        """Whether the part has lost so many races that it waits before its next try."""
        return key in self._races and self._races[key].wait() > 0

    def race_lost(self, each: OpenPart, error: Conflict) -> None:
        """A race is over at the next look. One that is lost again and again, for longer than an outage may last, is no
        race: the part is left then, with the reason.
        """
        lost = self._races.setdefault(each.key, Circuit(self._context.clock))
        lost.failed()
        if lost.down_for() > OUTAGE_SECONDS:
            self.race_over(each.key)
            problem = f"{each.part.ref} cannot go on, for others change the same thing: {error}"
            self.leave(each, UserError(problem, hint=MEND))

    def race_over(self, key: PartKey) -> None:
        self._races.pop(key, None)

    def leave(self, each: OpenPart, error: UserError) -> None:
        """Leave the part as this kind of process does: to the next run, or to other workers."""
        if self._kind == "run":
            self.give_up(each.key, error)
        else:
            self.set_aside(each, error)

    def going_on(self, found: Sequence[OpenPart], wanted: Collection[PartKey] = ()) -> list[OpenPart]:
        """Leave out the parts that have stopped by themselves; a run gives up its own."""
        for each in found:
            if each.error is None:
                continue
            if each.held and not each.processing:
                with suppress(Transient, Unknown):  # The next look frees its lease.
                    self._context.ledger.parts.stop(each.job_id, each.part.ref, each.error)
            if self._kind == "run" and (each.key in wanted or each.key in self._membership.parts):
                if each.part.ref not in self.problems:
                    self.give_up(each.key, UserError(each.error, hint=MEND))
            else:
                self._membership.forget(each.key)
        return [each for each in found if each.error is None]

    def is_over(self, key: PartKey) -> bool:
        """Whether other workers have ended the part: then data missing in the target is no error."""
        with suppress(Transient, Unknown):
            job = self._context.ledger.jobs.get(key[0])
            return job is None or job.part(key[1]).state is not None
        return False

    def wait_out(self, each: OpenPart, error: Outage | Away) -> None:
        """An outage: a run gives the part up; a worker waits, and stops the part when it takes too long."""
        ref = each.part.ref
        if self._kind == "run":
            away = Away(f"{ref}: {error}", hint=f"It was tried several times. {RESUMES}")
            self.give_up(each.key, away)
            return
        self._context.progress.say(ref.label, f"waiting: {error}")
        part_context = self._membership.known(each.key)
        if part_context and isinstance(error, Away):  # An `Outage` is counted by the wave itself.
            self._circuits.of(part_context.setup).failed()
        if part_context and self._circuits.of(part_context.setup).down_for() > self._context.timing.orphan / 1000:
            self._context.ledger.parts.stop(each.job_id, ref, f"{ref}: {error}", by=self._membership.id)

    def give_up(self, key: PartKey, error: UserError) -> None:
        """Leave a part to the next run, with all parts that wait for it, and go on with the others. Other workers of
        the job may do it.
        """
        _, ref = key
        self.problems[ref] = error
        for each in [each for each in sorted(self._membership.parts) if ref in self._above(each)]:
            self._give_up_one(each, ref)
        self._stop(key)

    def _above(self, key: PartKey) -> set[PartitionRef]:
        return self._membership.waiting.upstream(self._setups, [key[1]])

    def _give_up_one(self, key: PartKey, upstream: PartitionRef) -> None:
        error = self.problems[upstream]
        self.problems.setdefault(key[1], UserError(f"{key[1]} waits for {upstream}: {error.what}", hint=error.hint))
        self._stop(key)

    def give_up_waiting(self, parts: Sequence[OpenPart]) -> bool:
        """Give up parts that wait for one that was given up before they were taken. Whether there were any."""
        found = False
        for each in parts:
            if each.key in self._membership.waiting and (
                failed := sorted(self._above(each.key) & self.problems.keys())
            ):
                self._give_up_one(each.key, failed[0])
                found = True
        return found

    def _stop(self, key: PartKey) -> None:
        job_id, ref = key
        self._membership.forget(key)
        why, alone = cleaned(str(self.problems[ref])), tuple(self._context.own_workers)
        with suppress(Conflict, Transient, Unknown):  # Its job stops with the run.
            self._context.ledger.parts.stop(job_id, ref, why, by=self._membership.id, alone=alone)

    def set_aside(self, each: OpenPart, error: UserError) -> None:
        """Leave a part for a while because of an error; others may go on. Without other workers it stops, with the
        error, which spends an attempt of the wants on the part.
        """
        ref = each.part.ref
        if self._reported.get(ref) != str(error):
            self._reported[ref] = str(error)
            self._context.progress.say(ref.label, str(error))
        if self._membership.set_aside(each, str(error)):
            with suppress(Transient, Unknown):  # The next stop of the part spends it.
                fail_wants_of(each.job_id, ref, str(error), self._context.ledger)
