"""Results of commands that change something: a run, a promotion, an adoption, a deletion, a collection."""

from __future__ import annotations

from instep.answers.answer import OPTIONAL, Answer, Ref, ScopeText
from instep.answers.jobs import Counts
from instep.answers.spending import Spent, spent_answer
from instep.domain import speed
from instep.entities.plan_request import Kind
from instep.entities.setup import Inspection
from instep.jobs import adoption, garbage_collection, namespaces, promote
from instep.jobs.entity_result import EntityResult


class Cpu(Answer):
    """Seconds of CPU on a cluster: those of the driver (this process and its JVM) in the whole run so far, those of the
    Python workers in which tasks wrote, and the driver's `share` of both.
    """

    driver: float
    tasks: float
    share: float


class Run(Answer):
    """The result of a run for one partition. `cpu` is null unless its waves ran on a cluster. `spent`: the money that
    its job spent on embedding, if that costs something.
    """

    ref: Ref
    generation: str
    kind: Kind
    state: str
    job: str | None
    counts: Counts
    unchanged: int
    known_failures: int
    seconds: float
    engine: str | None
    promoted: bool
    cpu: Cpu | None
    spent: Spent | None = OPTIONAL
    notes: tuple[str, ...]
    problem: str | None


def run_answer(found: EntityResult) -> Run:
    return Run(
        ref=found.ref,
        generation=found.generation,
        kind=found.kind,
        state=found.state_name,
        job=found.job_id,
        counts=Counts.model_validate(found.counts),
        unchanged=found.unchanged,
        known_failures=found.known_failures,
        seconds=round(found.seconds, 3),
        engine=found.engine,
        promoted=found.promoted,
        cpu=_cpu(found.cpu),
        spent=spent_answer([found.spent]),
        notes=tuple(found.notes),
        problem=str(found.problem) if found.problem else None,
    )


def _cpu(found: speed.Cpu | None) -> Cpu | None:
    if found is None:
        return None
    return Cpu(driver=round(found.driver, 2), tasks=round(found.tasks, 2), share=round(found.share, 3))


class Promotion(Answer):
    """A promotion: readers of `ref` now get `generation`; until then they got `before`."""

    ref: Ref
    generation: str
    before: str
    changed: bool
    instance: str
    physical: str


def promotion_answer(found: promote.Promotion) -> Promotion:
    return Promotion.model_validate(found)


class Inspected(Answer):
    """Documents of an index that was inspected, by what became of them in the source."""

    documents: int
    rows: int
    same: int
    changed: int
    gone: int
    new: int
    damaged: int
    sampled: int
    unlike: int


class Adoption(Answer):
    """An index that can be adopted, or was. `rebuild`: the reason why it does not stay in use."""

    ref: Ref
    generation: str
    target: str
    alias: str
    physical: str | None
    owner: str
    live: bool
    rebuild: str | None
    found: Inspected | None
    adopted: bool


def adoption_answer(found: adoption.Adoption) -> Adoption:
    return Adoption(
        ref=found.ref,
        generation=found.generation,
        target=found.setup.target_name,
        alias=found.alias,
        physical=found.physical,
        owner=found.whose,
        live=found.live,
        rebuild=found.why_not,
        found=_inspected(found.inspection) if found.inspection else None,
        adopted=found.done,
    )


def _inspected(found: Inspection) -> Inspected:
    return Inspected(
        documents=len(found.entries),
        rows=found.rows,
        same=found.same,
        changed=found.changed,
        gone=found.gone,
        new=found.new,
        damaged=found.damaged,
        sampled=found.sampled,
        unlike=found.unlike,
    )


class Deletion(Answer):
    """Partitions, status keys and requests that were deleted with a namespace."""

    namespace: ScopeText
    partitions: tuple[Ref, ...]
    status_keys: tuple[str, ...]
    wanted: tuple[Ref, ...]
    dead_letters: tuple[Ref, ...]


def deletion_answer(found: namespaces.Deletion) -> Deletion:
    return Deletion(
        namespace=found.scope,
        partitions=tuple(found.partitions),
        status_keys=tuple(found.keys),
        wanted=tuple(found.wanted),
        dead_letters=tuple(found.letters),
    )


class Garbage(Answer):
    """Instances and wants that may be forgotten, or were, and the numbers of such jobs, slices and events."""

    instances: tuple[str, ...]
    wants: tuple[str, ...]
    by_ref: dict[str, int]
    jobs: int
    slices: int
    events: int
    keep_ms: int
    collected: bool


def garbage_answer(found: garbage_collection.Garbage) -> Garbage:
    return Garbage(
        instances=found.instances,
        wants=found.wants,
        by_ref=found.by_ref,
        jobs=found.jobs,
        slices=found.slices,
        events=found.events,
        keep_ms=found.keep,
        collected=found.collected,
    )
