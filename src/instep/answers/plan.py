"""Plans: what a run would do with each partition, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from instep.answers.answer import HIDDEN, OBJECT, OPTIONAL, Answer, Ref
from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.planning.plan import EntityPlan


class Engine(Answer):
    """The engine that a run would take; seconds are estimates, start included, by its pace: rows a second, `measured
    in` a job, or `a default`.
    """

    name: str
    reason: str
    work: int
    inline_seconds: float
    spark_seconds: float
    work_per_second: float
    pace_from: str


class Change(Answer):
    action: str
    uri: str
    why: str


class Plan(Answer):
    """The work of a run on one partition. `documents` (of a table: `rows`) are numbers by outcome. If they are asked
    for, `changes` are all of these with their reasons, and `skipped` the files that no `include` takes. `digest` stands
    for everything that the plan is based on. `problem` is why planning failed. `compared` says where a large source was
    compared with what is recorded, and why.
    """

    ref: Ref
    generation: str
    kind: Kind
    why: tuple[str, ...]
    documents: dict[str, int] | None = OPTIONAL
    rows: dict[str, int] | None = OPTIONAL
    slices: int
    work: int
    engine: Engine
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    blocked: str | None
    held_back: str | None
    waits_for: tuple[Ref, ...]
    resumes: str | None
    digest: str
    problem: str | None
    changes: tuple[Change, ...] | None = OPTIONAL
    skipped: tuple[str, ...] | None = OPTIONAL
    compared: str | None = OPTIONAL
    #: Documents or rows in all slices, if they were counted.
    units: int = HIDDEN
    #: Why a run would stop, with the option that allows it.
    refusal: str | None = HIDDEN
    error: Annotated[UserError | None, OBJECT] = HIDDEN

    @property
    def counts(self) -> dict[str, int]:
        return self.documents or self.rows or {}

    @property
    def pending(self) -> bool:
        """Whether a run would do something."""
        return self.kind is not Kind.NOTHING


def plan_answer(plan: EntityPlan, *, explain: bool, skipped: Sequence[str] | None = None) -> Plan:
    found, counts = plan.found, dict(plan.found.counts)
    return Plan(
        ref=plan.ref,
        generation=plan.generation,
        kind=plan.kind,
        why=tuple(found.why),
        documents=counts if found.unit == "document" else None,
        rows=counts if found.unit == "row" else None,
        slices=len(plan.slices),
        work=plan.work,
        engine=Engine.model_validate(plan.engine),
        problems=tuple(found.problems),
        warnings=tuple(found.warnings),
        blocked=found.blocked.why if found.blocked else None,
        held_back=found.held_back,
        waits_for=plan.waits_for,
        resumes=plan.resumes.id if plan.resumes else None,
        digest=plan.digest,
        problem=str(plan.problem) if plan.problem else None,
        changes=tuple(Change(action=each.action, uri=each.what, why=each.why) for each in found.changes)
        if explain
        else None,
        skipped=None if skipped is None else tuple(skipped),
        compared=found.compared,
        units=plan.units,
        refusal=str(found.blocked) if found.blocked else None,
        error=plan.problem,
    )
