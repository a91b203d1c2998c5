"""Plans: what a run would do with each partition, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from instep.answers.answer import HIDDEN, OBJECT, OPTIONAL, Answer, Ref
from instep.domain.money import UNIT, amount_text
from instep.domain.texts import amount, hidden
from instep.entities.plan_request import Kind
from instep.entities.setup import EntitySetup
from instep.errors import InstepError, UserError
from instep.planning.plan import EntityPlan


class Engine(Answer):
    """The engine that a run would take. Seconds are estimates, start included, by its pace: rows a second, either
    `measured in` a job or `a default`.
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


class Cost(Answer):
    """Texts that are to be embedded, their tokens, and their cost (null without `price`). `read` is the number of the
    plan's `documents` that were read for this: if not all, the numbers are estimates from a sample. `counted`: the
    model has counted the tokens; otherwise they are estimated from characters. `problem`: the reason why the cost is
    unknown.
    """

    texts: int | None = None
    tokens: int | None = None
    cost: float | None = None
    documents: int | None = None
    read: int | None = None
    counted: bool = False
    problem: str | None = None

    def __str__(self) -> str:
        if self.problem is not None or self.texts is None or self.tokens is None:
            return f"what it costs is not known: {self.problem}"
        about = "" if self.counted and self.documents == self.read else "about "
        told = f"embeds {about}{amount(self.texts, 'text')}, {amount(self.tokens, 'token')}"
        if self.cost is not None:
            told += f", for {about}{amount_text(round(self.cost * UNIT))}"
        if not self.counted:
            told += "; how the model counts tokens is not known: four characters are taken for one"
        if self.documents != self.read:
            told += f"; from a sample of {self.read:,} of {self.documents or 0:,} documents"
        return told


def cost_answer(setup: EntitySetup, plan: EntityPlan, say: Callable[[str], None]) -> Cost | None:
    """The cost of the plan, as far as embedding costs something."""
    try:
        found = setup.estimate(plan.slices, say)
    except InstepError as error:
        return Cost(problem=hidden(str(error)))
    if found is None:
        return None
    cost = None if found.cost is None else found.cost / UNIT
    return Cost(**found._asdict() | {"cost": cost})


class Plan(Answer):
    """The work of a run on one partition. `documents` (for a table, `rows`) are numbers by outcome. On request,
    `changes` lists all of them with their reasons, and `skipped` the files that no `include` takes. `digest` stands for
    everything that the plan is based on. `problem`: the reason why planning failed. `compared`: where a large source
    was compared with the record, and why. `cost`: the cost of embedding, if it costs something.
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
    cost: Cost | None = OPTIONAL
    #: Documents or rows in all slices, if they were counted.
    units: int = HIDDEN
    #: Why a run would stop, with the option that allows it.
    refusal: str | None = HIDDEN
    error: Annotated[UserError | None, OBJECT] = HIDDEN

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of new, changed, deleted, retried and unchanged documents or rows."""
        return self.documents or self.rows or {}

    @property
    def pending(self) -> bool:
        """Whether a run would do something."""
        return self.kind is not Kind.NOTHING


def plan_answer(
    plan: EntityPlan, *, explain: bool, skipped: Sequence[str] | None = None, cost: Cost | None = None
) -> Plan:
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
        cost=cost,
        units=plan.units,
        refusal=str(found.blocked) if found.blocked else None,
        error=plan.problem,
    )
