"""Planning: what is new, changed or gone, why, and how it would be cut. Writes nothing."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from instep.domain.fingerprint import changed_parts
from instep.domain.instances import Instance, InstanceState, Reason, first_reason
from instep.domain.jobs import Job, SlicePlan
from instep.domain.manifest import Action, Difference, difference
from instep.domain.planning import check_limits, cut_documents
from instep.domain.refs import PartitionRef
from instep.domain.replacement import judged
from instep.engine.choice import EngineChoice
from instep.errors import UserError
from instep.ledger.port import Checkpoint, Ledger
from instep.service.instances import past_ttl
from instep.service.setup import EntitySetup
from instep.service.upstream import missing_upstream
from instep.service.wants import can_begin, waiting_wants
from instep.sources.port import Listing


class Kind(StrEnum):
    """What a run would do with a partition."""

    NOTHING = "nothing"
    FIRST_BUILD = "first build"
    REFRESH = "refresh"
    REBUILD = "rebuild"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """`full_refresh`: build a new instance whatever changed. `allow_deletes`: past the guard. `generation`: the one to
    bring up to date; None for that which is promoted.
    """

    full_refresh: bool = False
    retry_failures: bool = False
    allow_deletes: bool = False
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class EntityPlan:
    """What a run would do for one partition, and on what state of the world that rests.

    `unfinished` is a job that has not ended; it is continued, its slices as they were planned then,
    unless it cannot be. `blocked` says why a run would refuse (the delete guard); `held_back` why it does nothing
    though something is to be built: it would fail as it did before. `current` is the canonical instance.
    """

    ref: PartitionRef
    generation: str
    kind: Kind
    why: Sequence[str]
    difference: Difference
    slices: Sequence[SlicePlan]
    engine: EngineChoice
    problems: Sequence[str]
    blocked: str | None
    held_back: str | None
    waits_for: tuple[PartitionRef, ...]
    checkpoint: Checkpoint | None
    current: Instance | None
    unfinished: Job | None
    fingerprint: Mapping[str, str]
    digest: str

    @property
    def resumes(self) -> Job | None:
        return self.unfinished if self.kind is Kind.RESUME else None

    @property
    def pending(self) -> bool:
        return self.kind is not Kind.NOTHING

    @property
    def work(self) -> int:
        return sum(each.work for each in self.slices)

    @property
    def units(self) -> int:
        return sum(each.units for each in self.slices)

    def counts(self) -> dict[str, int]:
        actions = Counter(change.action for change in self.difference.changes)
        return {
            "new": actions[Action.INSERT],
            "changed": actions[Action.UPDATE],
            "deleted": actions[Action.DELETE],
            "retried": actions[Action.RETRY],
            "unchanged": self.difference.unchanged,
            "known_failures": self.difference.known_failures,
        }

    def as_dict(self, *, explain: bool = False) -> dict[str, Any]:
        value: dict[str, Any] = {
            "ref": str(self.ref),
            "generation": self.generation,
            "kind": str(self.kind),
            "why": list(self.why),
            "documents": self.counts(),
            "slices": len(self.slices),
            "work": self.work,
            "engine": asdict(self.engine),
            "problems": list(self.problems),
            "blocked": self.blocked,
            "held_back": self.held_back,
            "waits_for": [str(each) for each in self.waits_for],
            "resumes": self.resumes.id if self.resumes else None,
            "digest": self.digest,
        }
        if explain:
            value["changes"] = [
                {"action": str(each.action), "uri": each.uri, "why": each.reason} for each in self.difference.changes
            ]
        return value


def plan_entity(
    setup: EntitySetup,
    ledger: Ledger,
    options: PlanOptions,
    generation: str,
    *,
    choose: Callable[[EntitySetup, int], EngineChoice],
    listing: Callable[[int], None] | None = None,
) -> EntityPlan:
    """Compare the source with the ledger. Never writes; may be thrown away."""
    checkpoint = ledger.checkpoint(setup.ref, generation)
    unfinished = ledger.unfinished_job(setup.ref, generation)
    if checkpoint and checkpoint.buckets != setup.buckets and not options.full_refresh:
        raise UserError(
            f"{setup.ref} is routed over {checkpoint.buckets} buckets, and the project now says {setup.buckets}: "
            "documents would change hands between writers",
            hint=f"Set buckets back to {checkpoint.buckets}, or rebuild with --full-refresh.",
        )
    current = ledger.canonical(setup.ref, generation)
    kind, why, base = _kind(setup, checkpoint, unfinished, current, options)
    if kind is Kind.REFRESH and current and is_over(setup, current, ledger):
        kind, why, base = Kind.REBUILD, ["its time to live is over"], None
    found = setup.source.list(listing)
    recorded = ledger.manifest(base) if base else {}
    changes = difference(
        found.documents,
        recorded,
        ledger.failed_versions(setup.ref, generation),
        complete=found.complete,
        buckets=setup.buckets,
        # A rebuild starts from nothing: what failed under the old transform may pass under the new.
        retry_failures=options.retry_failures or kind is Kind.REBUILD,
    )
    if kind is Kind.REFRESH and not changes.changes:
        why = _wanted(setup.ref, generation, current, ledger)
        kind = Kind.REFRESH if why else Kind.NOTHING
    if kind is Kind.FIRST_BUILD and not changes.changes:
        kind, why = Kind.NOTHING, [*why, "the source holds no documents that can be indexed"]
    held_back = None
    if kind is Kind.REBUILD and checkpoint and not _asked(setup.ref, generation, current, options, ledger):
        held_back = _would_fail_again(setup, checkpoint, current, found, ledger)
        if held_back:
            kind, why, changes = Kind.NOTHING, [*why, held_back], replace(changes, changes=())
    blocked = None
    if kind is Kind.REFRESH:
        blocked = _blocked(setup, changes, options)
    elif kind is Kind.REBUILD and checkpoint:
        blocked = _left_out(setup, checkpoint, found, options, ledger)
    slices = cut_documents(changes.changes, setup.sizing, priority=setup.priority) if kind is not Kind.NOTHING else []
    check_limits([len(slices)])
    return EntityPlan(
        ref=setup.ref,
        generation=generation,
        kind=kind,
        why=why,
        difference=changes,
        slices=slices,
        engine=choose(setup, sum(each.work for each in slices)),
        problems=found.problems,
        blocked=blocked,
        held_back=held_back,
        waits_for=missing_upstream(setup, ledger) if kind is not Kind.NOTHING else (),
        checkpoint=checkpoint,
        current=current,
        unfinished=unfinished,
        fingerprint=setup.fingerprint,
        digest=_digest(kind, setup, generation, checkpoint, changes),
    )


def reason_of(plan: EntityPlan) -> Reason:
    """Why an instance is made for a plan that builds one."""
    if plan.kind is Kind.FIRST_BUILD:
        return first_reason(plan.generation)
    return Reason.FINGERPRINT if plan.checkpoint and plan.fingerprint != plan.checkpoint.fingerprint else Reason.REBUILD


_MISSING = {
    Reason.TAINT: "what is served was tainted",
    Reason.EXPIRY: "what is served has expired",
    Reason.REBUILD: "a rebuild was asked for",
    Reason.FAILURE: "the last build failed",
}


def is_over(setup: EntitySetup, current: Instance, ledger: Ledger) -> bool:
    """Whether the instance has lived for longer than the entity's time to live."""
    return past_ttl(current, setup.ttl, ledger.now())


def _asked(ref: PartitionRef, generation: str, current: Instance | None, options: PlanOptions, ledger: Ledger) -> bool:
    """Whether somebody wants it to be tried, whatever is known: by an option, or by a want that was made since. A job
    that waits for it is nobody: each run of what is made from it would build it again, in vain.
    """
    if options.full_refresh or options.retry_failures:
        return True
    now = ledger.now()
    wants = waiting_wants(ledger, ref, generation)
    people = [want for want in wants if want.derivative_of is None]
    return any(can_begin(want, now) and not want.satisfied_by(current) for want in people)


def _would_fail_again(
    setup: EntitySetup, checkpoint: Checkpoint, current: Instance | None, found: Listing, ledger: Ledger
) -> str | None:
    """Why a new build would be refused as the last one was, made in the same way, if all documents fail again that
    have failed at this version; None if it may go well, or nothing is known of it.
    """
    if current is None or current.state is not InstanceState.MISSING or current.reason is not Reason.FAILURE:
        return None
    last = ledger.instance(current.previous) if current.previous else None
    if last is None or changed_parts(setup.fingerprint, last.fingerprint or {}):
        return None
    listed = {each.uri: each.version for each in found.documents}
    if not listed:
        return "the source is empty, and what is served stays"
    failures = ledger.failed_versions(setup.ref, current.generation)
    failing = {uri for uri, version in listed.items() if failures.get(uri) == version}
    if not failing:
        return None
    served = {uri: entry.version for uri, entry in ledger.manifest(checkpoint.instance).items()}
    verdict = judged(served, listed, failing)
    if verdict.enough:
        return None
    return f"it is not tried again before they change: {verdict}; what is served stays (see `instep failures`)"


def _wanted(ref: PartitionRef, generation: str, current: Instance | None, ledger: Ledger) -> list[str]:
    """Wants that only a look at the source can satisfy, here: nothing has changed, as of now."""
    now = ledger.now()
    wants = waiting_wants(ledger, ref, generation)
    lacking = [each for each in wants if not each.satisfied_by(current)]
    waiting = [each.id for each in lacking if each.needed is not None and each.needed <= now]
    return [f"nothing has changed; wanted as of now by {', '.join(each[:8] for each in waiting)}"] if waiting else []


def _kind(
    setup: EntitySetup,
    checkpoint: Checkpoint | None,
    unfinished: Job | None,
    current: Instance | None,
    options: PlanOptions,
) -> tuple[Kind, list[str], str | None]:
    """What to do, why, and the instance whose manifest to compare with (None: nothing is there)."""
    if unfinished and not options.full_refresh:
        part = unfinished.part(setup.ref).part
        if part.buckets == setup.buckets and not changed_parts(setup.fingerprint, part.fingerprint):
            return Kind.RESUME, [f"job {unfinished.id} has not ended"], part.instance
    if checkpoint is None:
        return Kind.FIRST_BUILD, ["not indexed yet"], None
    if options.full_refresh:
        return Kind.REBUILD, ["full refresh asked"], None
    changed = changed_parts(setup.fingerprint, checkpoint.fingerprint)
    if changed:
        why = [f"{part} changed" for part in changed]
        return Kind.REBUILD, [*why, "every document is indexed again beside the old index"], None
    if current and not current.usable:
        return Kind.REBUILD, [_MISSING.get(current.reason, f"the last build ended by {current.reason}")], None
    return Kind.REFRESH, [], checkpoint.instance


def _blocked(setup: EntitySetup, changes: Difference, options: PlanOptions) -> str | None:
    if options.allow_deletes or not setup.guard.blocks(changes):
        return None
    return (
        f"{changes.deletes:,} of {changes.recorded:,} documents are gone from the source; "
        f"more than {setup.guard.share:.0%} at once is not deleted unasked"
    )


def _left_out(
    setup: EntitySetup, checkpoint: Checkpoint, found: Listing, options: PlanOptions, ledger: Ledger
) -> str | None:
    """The same guard for a rebuild: what is not listed would be left out, so that it would be served no more."""
    if options.allow_deletes:
        return None
    if not found.complete:
        return f"a build would leave out what could not be listed: {found.problems[0]}"
    served = ledger.manifest(checkpoint.instance)
    changes = difference(found.documents, served, {}, complete=True, buckets=setup.buckets)
    return _blocked(setup, changes, options)


def _digest(kind: Kind, setup: EntitySetup, generation: str, checkpoint: Checkpoint | None, changes: Difference) -> str:
    """Names this very plan: same world and same project, same digest."""
    state = hashlib.sha256()
    state.update(
        repr((str(setup.ref), generation, str(kind), sorted(setup.fingerprint.items()), setup.buckets)).encode()
    )
    state.update(repr((checkpoint.instance, checkpoint.job_id) if checkpoint else None).encode())
    for each in changes.changes:
        state.update("\0".join((each.action, each.uri, str(each.size), each.version)).encode())
    return state.hexdigest()[:32]
