"""Plan: find what is new, changed or gone, why, and how it is cut into slices. Writes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from instep.domain.fingerprint import TARGET, change_text, changed_parts
from instep.domain.instances import Instance, Reason, first_reason
from instep.domain.jobs import Job, SlicePlan
from instep.domain.planning import check_limits
from instep.domain.refs import PartitionRef
from instep.domain.settings import NO_SETTINGS, JobSettings, settings_in, together
from instep.domain.texts import amount
from instep.domain.wants import SCHEDULE
from instep.entities.aliases import lost_aliases
from instep.entities.generations import waiting_wants
from instep.entities.instances import past_ttl
from instep.entities.ownership import Outage, demand_ownership, restored, vanished
from instep.entities.plan_request import Found, Kind, PlanOptions, PlanRequest
from instep.entities.setup import EntitySetup
from instep.errors import Away, Transient, Unknown, UserError
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.pipeline.engine.choice import EngineChoice
from instep.planning.choosing import Choose
from instep.planning.contacts import Contacts, Unasked
from instep.planning.loaded import Loaded, loaded_for
from instep.planning.upstream import missing_upstream, replaced_inputs

_UNASKED: Final = Unasked()


@dataclass(frozen=True, slots=True)
class EntityPlan:
    """The work of a run on one partition, and the state that the plan is based on.

    `unfinished` is a job that has not ended; it is resumed with its stored slices if possible. `current` is the
    canonical instance, `settings` those of its wants. `traceparent` is the trace of the request, or of the planning.
    `problem` is why planning failed.
    """

    ref: PartitionRef
    generation: str
    found: Found
    engine: EngineChoice
    waits_for: tuple[PartitionRef, ...]
    checkpoint: Checkpoint | None
    current: Instance | None
    unfinished: Job | None
    fingerprint: Mapping[str, str]
    digest: str
    settings: JobSettings = NO_SETTINGS
    traceparent: str = ""
    problem: UserError | None = None

    @property
    def kind(self) -> Kind:
        return self.found.kind

    @property
    def slices(self) -> Sequence[SlicePlan]:
        return self.found.slices

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


def plan_entity(
    setup: EntitySetup,
    ledger: Ledger,
    options: PlanOptions,
    generation: str,
    *,
    choose: Choose,
    listing: Callable[[int], None] | None = None,
    indexes: Callable[[str], set[str]] | None = None,
    contacts: Contacts = _UNASKED,
    loaded: Loaded | None = None,
) -> EntityPlan:
    """Compare the source with the ledger. Never writes but for notes of `contacts`; may be thrown away. `indexes` is
    the ledger's method, or a cache of it. `loaded`: what this process has loaded. Raises `Outdated` if that is too old.
    """
    made_of = setup.fingerprint  # First: what cannot be built is not read, for which Spark might have to start.
    checkpoint = ledger.checkpoints.get(setup.ref, generation)
    unfinished = ledger.jobs.unfinished(setup.ref, generation)
    if not (options.full_refresh or options.reroute):
        _demand_routes(setup, checkpoint, unfinished)
    current = ledger.instances.canonical(setup.ref, generation)
    first = checkpoint is None or unfinished is not None
    outage = demand_ownership(setup, ledger, generation) if first else None
    kind, why = _kind(setup, checkpoint, unfinished, current, options, ledger=ledger, loaded=loaded)
    if kind is Kind.REFRESH and current and is_over(setup, current, ledger):
        kind, why = Kind.REBUILD, ["its time to live is over"]
    if kind is Kind.REFRESH and current and (newer := replaced_inputs(setup, ledger, current)):
        kind, why = Kind.REBUILD, [f"{each} was replaced since" for each in newer]
    asked = partial(_asked, setup.ref, generation, current, options, ledger)
    settings = cache(partial(wanted_settings, ledger, setup.ref, generation))
    request = PlanRequest(
        ledger,
        options,
        generation,
        kind,
        why,
        checkpoint,
        current,
        unfinished,
        asked,
        settings,
        listing,
        indexes or ledger.partitions.indexes,
    )
    found, older = setup.find(request), list[str]()
    if found.kind is not Kind.NOTHING:
        # Of a target that was away a moment ago, an answer would be waited for twice.
        outage = outage or demand_ownership(setup, ledger, generation)
        if outage is not None:
            found = replace(found, warnings=[*found.warnings, f"a run would wait for its target: {_said(outage)}"])
        elif checkpoint is not None and kind is Kind.REFRESH and not options.repair:
            older = _restored(setup, ledger, checkpoint)
    elif checkpoint is not None and not options.repair:
        lost, older = _demand_newest(setup, ledger, checkpoint, contacts)
        if lost and kind is Kind.REFRESH:
            found = _serving_again(setup, found, checkpoint, lost)
    if older and kind is Kind.REFRESH:
        # A refresh would bring its epoch up to date, and nothing would tell any more what it lacks.
        found = _made_whole(setup, request, found, older)
    check_limits([len(found.slices)])
    return EntityPlan(
        ref=setup.ref,
        generation=generation,
        found=found,
        engine=choose(
            setup,
            sum(each.work for each in found.slices),
            documents=sum(each.units for each in found.slices) if found.unit == "document" else 0,
        ),
        waits_for=missing_upstream(setup, ledger) if found.kind is not Kind.NOTHING else (),
        checkpoint=checkpoint,
        current=current,
        unfinished=unfinished,
        fingerprint=made_of,
        digest=_digest(setup, generation, checkpoint, found),
        settings=NO_SETTINGS if found.kind in (Kind.NOTHING, Kind.RESUME) else settings(),
    )


def _said(outage: Outage) -> str:
    """An outage in one line: its place and reason. A hint is for the run that waits."""
    if not isinstance(outage, Away):
        return str(outage)
    return f"{outage.where}: {outage.what}" if outage.where else outage.what


def _restored(setup: EntitySetup, ledger: Ledger, checkpoint: Checkpoint) -> list[str]:
    """The reason to build an index again that was put back to an older state; none of one whose target is away."""
    with suppress(Away, Transient, Unknown):
        if told := restored(setup, checkpoint, ledger.jobs.get(checkpoint.job_id)):
            return [told]
    return []


def _made_whole(setup: EntitySetup, request: PlanRequest, found: Found, why: list[str]) -> Found:
    """The plan of a job that repairs documents of an index, and leaves what was `found` to the next one of the same
    run; or that builds it again, if it is of a table, or not all of it can be repaired.
    """
    if setup.unit == "document":
        repaired = setup.find(replace(request, options=replace(request.options, repair=True)))
        if not repaired.problems and repaired.blocked is None:
            left = sum(each.units for each in found.slices)
            after = [f"then {amount(left, 'document')} that changed in the source"] if left else []
            return replace(repaired, kind=Kind.REFRESH, why=[*why, *repaired.why, *after], left=left)
    return setup.find(replace(request, kind=Kind.REBUILD, why=why))


def _names(setup: EntitySetup, checkpoint: Checkpoint) -> list[str]:
    return [name for name in (setup.alias, setup.alias_of(checkpoint.generation)) if name]


def _demand_newest(
    setup: EntitySetup, ledger: Ledger, checkpoint: Checkpoint, contacts: Contacts
) -> tuple[list[str], list[str]]:
    """Check, where nothing is to be done, that the index is there, and that the target has seen nothing newer than this
    ledger has done: it may have been replaced by an older one, and the source as well. See `contacts`. Returns aliases
    that serve nothing any more, and the reason to build it again, if there is one.
    """
    ref, generation, physical = setup.ref, checkpoint.generation, checkpoint.physical
    known = contacts.known(ref, generation, physical, _names(setup, checkpoint))
    outdated = known is None or (known and known > ledger.leases.last_epoch(ref))
    if not outdated:
        return [], []
    outage = demand_ownership(setup, ledger, generation)
    is_gone, lost, older = False, list[str](), list[str]()
    try:
        is_gone = outage is None and not setup.target.exists(physical)
        if outage is None and not is_gone:
            lost, older = lost_aliases(setup, checkpoint, ledger), _restored(setup, ledger, checkpoint)
    except (Away, Transient, Unknown) as error:
        outage = error
    if outage is not None:
        contacts.put_off(ref, physical)
        return [], []
    if is_gone:
        raise vanished(setup, physical, ledger)
    if not lost and not older:
        contacts.note(ref, generation, physical, ledger.leases.last_epoch(ref))
    return lost, older


def _serving_again(setup: EntitySetup, found: Found, checkpoint: Checkpoint, lost: Sequence[str]) -> Found:
    """The plan of a job without slices: what it does is to make these aliases again, as every job does in the end."""
    why = [f"alias {each!r} is gone from target {setup.target_name!r}, and is made again" for each in lost]
    target = checkpoint.watermark if found.target is None else found.target
    return replace(found, kind=Kind.REFRESH, why=why, target=target)


def unplanned(
    setup: EntitySetup,
    generation: str,
    choose: Choose,
    problem: UserError | None = None,
) -> EntityPlan:
    """An empty plan for a partition that could not be planned."""
    nothing = Found(Kind.NOTHING, [], setup.unit)
    return EntityPlan(
        setup.ref,
        generation,
        nothing,
        choose(setup, 0),
        (),
        None,
        None,
        None,
        {},
        "",
        problem=problem,
    )


def _demand_routes(setup: EntitySetup, checkpoint: Checkpoint | None, unfinished: Job | None) -> None:
    """Check that the number of buckets is that of the index and of the job in work. Raises `UserError` if not."""
    if unfinished:
        buckets, what = unfinished.part(setup.ref).part.buckets, f"job {unfinished.id} on {setup.ref}"
    elif checkpoint:
        buckets, what = checkpoint.buckets, str(setup.ref)
    else:
        return
    if buckets != setup.buckets:
        raise UserError(
            f"{what} is routed over {buckets} buckets, and the project now says {setup.buckets}: "
            "documents would move between writers",
            hint=f"Set buckets back to {buckets}, or rebuild it beside the served index: "
            f"instep rebalance {setup.alias} --buckets {setup.buckets}",
        )


def reason_of(plan: EntityPlan) -> Reason:
    """The reason of a new instance, for a plan that builds one."""
    if plan.kind is Kind.FIRST_BUILD:
        return first_reason(plan.generation)
    changed = plan.checkpoint and changed_parts(plan.fingerprint, plan.checkpoint.fingerprint)
    return Reason.FINGERPRINT if changed else Reason.REBUILD


_MISSING = {
    Reason.TAINT: "the served index was tainted",
    Reason.EXPIRY: "the served index has expired",
    Reason.REBUILD: "a rebuild was asked for",
    Reason.FAILURE: "the last build failed",
}


def is_over(setup: EntitySetup, current: Instance, ledger: Ledger) -> bool:
    """Whether the instance is older than the entity's time to live."""
    return past_ttl(current, setup.ttl, ledger.present())


def _asked(ref: PartitionRef, generation: str, current: Instance | None, options: PlanOptions, ledger: Ledger) -> bool:
    """Whether a user asks to try it regardless of what is known: by an option, or by a want made since. The want of a
    waiting job or of a schedule does not count: each run of a downstream entity, or each tick, would repeat a build
    that fails.
    """
    if options.full_refresh or options.retry_failures or options.allow_empty:
        return True
    now = ledger.present()
    wants = waiting_wants(ledger, ref, generation)
    people = [want for want in wants if want.derivative_of is None and want.by != SCHEDULE]
    return any(want.can_begin(now) and not want.satisfied_by(current) for want in people)


def _kind(
    setup: EntitySetup,
    checkpoint: Checkpoint | None,
    unfinished: Job | None,
    current: Instance | None,
    options: PlanOptions,
    *,
    ledger: Ledger,
    loaded: Loaded | None,
) -> tuple[Kind, list[str]]:
    """The action and its reasons, from the ledger alone; a target that is declared in another place is asked, too."""
    if unfinished and not options.full_refresh:
        part = unfinished.part(setup.ref).part
        if setup.misfit(part) is None and not allowed_since(unfinished, setup, options):
            return Kind.RESUME, [f"job {unfinished.id} has not ended"]
    if checkpoint is None:
        return Kind.FIRST_BUILD, ["not indexed yet"]
    why = _outdated(setup, ledger, checkpoint, loaded)
    if options.full_refresh:
        return Kind.REBUILD, ["full refresh asked"]
    if why:
        return Kind.REBUILD, why
    if current and not current.usable:
        return Kind.REBUILD, [_MISSING.get(current.reason, f"the last build ended by {current.reason}")]
    return Kind.REFRESH, []


def _outdated(setup: EntitySetup, ledger: Ledger, checkpoint: Checkpoint, loaded: Loaded | None) -> list[str]:
    """The reasons why the declaration needs another index than that of the checkpoint."""
    changed = setup.changed_since_built(ledger, checkpoint)
    if changed and loaded:
        built = ledger.instances.get(checkpoint.instance)
        loaded.demand_newest(setup.ref, changed, built, loaded_for(built, ledger))
    why = [change_text(part, setup.fingerprint, checkpoint.fingerprint) for part in changed]
    if checkpoint.buckets != setup.buckets:
        why.append(f"it is to be routed over {setup.buckets} buckets instead of {checkpoint.buckets}")
    if TARGET in changed:
        return [*why, "all of it is indexed there; what is in the old place stays there, untouched"]
    return [*why, "all of it is indexed again beside the old index"] if why else []


def allowed_since(unfinished: Job, setup: EntitySetup, options: PlanOptions) -> bool:
    """Whether a refresh that may have stopped because it lost too much is started again, now that deletes are allowed:
    its finished work stays.
    """
    refresh = not unfinished.part(setup.ref).part.fresh
    return refresh and options.allow_deletes and not unfinished.configuration.get("allow_deletes")


def _digest(setup: EntitySetup, generation: str, checkpoint: Checkpoint | None, found: Found) -> str:
    """Digest of this exact plan: same sources and same project, same digest."""
    state = hashlib.sha256()
    state.update(
        repr((str(setup.ref), generation, str(found.kind), sorted(setup.fingerprint.items()), setup.buckets)).encode()
    )
    state.update(repr((checkpoint.instance, checkpoint.job_id) if checkpoint else None).encode())
    for each in found.state:
        state.update(each.encode())
    return state.hexdigest()[:32]


def wanted_settings(ledger: Ledger, ref: PartitionRef, generation: str) -> JobSettings:
    """The settings of the wants that a job on this partition serves; the oldest want first."""
    now = ledger.now()
    waiting = [each for each in waiting_wants(ledger, ref, generation) if each.can_begin(now)]
    return together(each.settings for each in sorted(waiting, key=lambda each: each.created_at))


def as_job_says(setup: EntitySetup, ledger: Ledger, job_id: str) -> EntitySetup:
    """The setup with a job's settings. Only a target with limits needs the query."""
    job = ledger.jobs.get(job_id) if setup.bounds_requests else None
    return setup if job is None else setup.bounded(settings_in(job.configuration, str(setup.ref)))
