"""Runs for orchestrators: they return what was done in each partition, what is served, and whether another try may
help; and what others have built, by the event log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from instep.answers.results import Run, run_answer
from instep.answers.status import Partition
from instep.app import Instep
from instep.container import Container
from instep.domain.counts import Counts
from instep.domain.events import InstanceLive, InstanceRefreshed, read
from instep.domain.refs import PartitionRef
from instep.entities.generations import generation_of
from instep.errors import Away, InstepError, UserError
from instep.jobs.entity_result import EntityResult

#: How many failures are told.
_TOLD = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run for one partition, and its status after that. `failures` are some of what failed."""

    result: EntityResult
    status: Partition
    failures: Sequence[str]

    @property
    def ref(self) -> str:
        return str(self.result.ref)

    @property
    def answer(self) -> Run:
        return run_answer(self.result)

    def well(self, *, allow_failures: bool) -> bool:
        """Whether all is in, or, with `allow_failures`, all but what failed by itself."""
        each = self.result
        if not allow_failures:
            return not (each.failed or each.partial)
        return not (each.failed or each.held_back or each.damaged or each.incomplete)

    @property
    def may_pass(self) -> bool:
        """Whether another try may mend it. One that finds failed documents unchanged would do nothing, and succeed."""
        each = self.result
        if each.failed:
            return each.problem is None or may_pass(each.problem)
        return each.incomplete and not each.counts.failed

    @property
    def reason(self) -> str:
        """All that is known of what is not well."""
        notes = [str(self.result.problem)] if self.result.problem else [*self.result.notes, *self.status.notes]
        first, *others = [*dict.fromkeys(notes), *self.failures] or [str(self.result.counts)]
        return "\n".join([f"{self.ref} {self.result.state_name}: {first}", *others])


@dataclass(frozen=True, slots=True)
class Built:
    """A served instance that a job has built or brought up to date. `sequence`: that of the event that says so;
    `complete_up_to`: its watermark, in ms.
    """

    sequence: int
    ref: PartitionRef
    instance: str
    job: str
    complete_up_to: int
    counts: Counts


def newest_event(project: Instep) -> int:
    """The sequence of the event log's last event; 0 while there is none."""
    with closing(Container(project.project).ledger(read_only=True)) as ledger:
        return ledger.events.last()


def built_after(project: Instep, after: int, *, limit: int = 1_000) -> tuple[list[Built], int]:
    """Read so many events of the log after a sequence: the instances built or brought up to date by them, in order, and
    the sequence that was read up to. Instances that are no longer kept, or not served, are left out.
    """
    found: list[Built] = []
    with closing(Container(project.project).ledger(read_only=True)) as ledger:
        for each in read(ledger.events.rows(after, limit)):
            after, event = each.sequence, each.event
            if not isinstance(event, InstanceLive | InstanceRefreshed):
                continue
            instance = ledger.instances.get(event.instance)
            if instance is None:
                continue
            ref = PartitionRef.parse(instance.ref)
            if instance.generation == generation_of(ledger, ref, None):
                found.append(Built(after, ref, instance.uuid, event.job, event.watermark, event.counts))
    return found, after


def outcomes(project: Instep, names: Sequence[str], **options: Any) -> list[Outcome]:
    """Run these entities, or partitions of them (all, if none is named), with the options of `Instep.run`."""
    return [_outcome(project, each) for each in project.run(names or None, **options)]


def _outcome(project: Instep, result: EntityResult) -> Outcome:
    name = str(result.ref)
    (status,) = project.status([name], generation=result.generation)
    failed = project.failures([name], limit=_TOLD) if result.counts.failed else ()
    return Outcome(result, status, tuple(f"{each.uri}: {each.reason}" for each in failed))


def may_pass(error: InstepError) -> bool:
    """Whether the same call may succeed later, though nobody does anything about it."""
    return not isinstance(error, UserError) or error.exit_code == Away.exit_code
