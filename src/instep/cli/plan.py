"""`instep plan`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.exit_codes import ExitCode, report
from instep.cli.options import (
    AllowDeletesOption,
    AllowEmptyOption,
    EntitiesArgument,
    FullRefreshOption,
    GenerationOption,
    JsonOption,
    ProjectOption,
    QuietOption,
    RetryFailuresOption,
)
from instep.cli.output import Output
from instep.cli.texts import ref_text
from instep.domain.refs import generation_text

if TYPE_CHECKING:
    from instep.planning.plan import EntityPlan


def plan(
    entities: EntitiesArgument = None,
    save: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Save the plan, for `instep run FILE`.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="List every document, with the reason.")] = False,
    full_refresh: FullRefreshOption = False,
    retry_failures: RetryFailuresOption = False,
    allow_deletes: AllowDeletesOption = False,
    allow_empty: AllowEmptyOption = False,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what a run would do, and why. Writes no state; exits with 2 when changes are pending, else with 3 when not
    all of a source could be seen. What cannot be planned of one entity hides no other: it exits with 1, or with 75 when
    that may pass.

    \b
    Examples:
      instep plan
      instep plan Document --explain
      instep plan -o plan.json && instep run plan.json
    """
    from instep.app import load
    from instep.cli.plan_file import write_plan

    out = Output(as_json=as_json, quiet=quiet)
    opened = load(project)
    with out.progress() as progress:
        plans = opened.plan(
            entities,
            full_refresh=full_refresh,
            retry_failures=retry_failures,
            allow_deletes=allow_deletes,
            allow_empty=allow_empty,
            generation=generation,
            progress=progress,
        )
    if save:
        write_plan(
            save,
            opened.project,
            plans,
            full_refresh=full_refresh,
            retry_failures=retry_failures,
            allow_deletes=allow_deletes,
            allow_empty=allow_empty,
            generation=generation,
        )
    out.result([each.as_dict(explain=explain) for each in plans], lambda: _show(out, plans, explain=explain))
    if save:
        out.note(f"saved to {save}; run exactly this with: instep run {save}")
    codes = [report(each.problem, as_json=False) for each in plans if each.problem]
    if codes:
        raise typer.Exit(min(codes))
    if any(each.pending for each in plans):
        raise typer.Exit(ExitCode.CHANGES)
    if any(each.found.problems for each in plans):
        raise typer.Exit(ExitCode.FAILURES)


def _show(out: Output, plans: Sequence[EntityPlan], *, explain: bool) -> None:
    rows = []
    for each in plans:
        counts = each.found.counts
        rows.append(
            [
                ref_text(each.ref, each.generation),
                "-" if each.problem else str(each.kind),
                counts.get("new"),
                counts["changed"] + counts["retried"] if "changed" in counts else None,
                counts.get("deleted"),
                counts.get("unchanged"),
                len(each.slices),
                each.work if each.units or not each.slices else None,
            ]
        )
    out.table(None, ["entity", "plan", "new", "changed", "deleted", "same", "slices", "est. rows"], rows)
    for each in plans:
        _show_reasons(out, each)
        if explain:
            for change in each.found.changes:
                out.line(f"  {change.action:<7} {change.what}  ({change.why})")
    if not any(each.pending or each.problem or each.found.problems for each in plans):
        out.line("Nothing to do.")


def _show_reasons(out: Output, plan: EntityPlan) -> None:
    name = generation_text(plan.ref, plan.generation)
    for why in plan.found.why:
        out.line(f"{name}: {why}")
    if plan.waits_for:
        out.line(f"{name}: waits for {', '.join(map(str, plan.waits_for))}")
    if plan.pending:
        out.line(f"{name}: runs {plan.engine.name}: {plan.engine.reason}")
    for warning in plan.found.warnings:
        out.line(f"{name}: {warning}")
    for problem in plan.found.problems:
        out.line(f"{name}: not all of the source can be read, and what may be there is not deleted: {problem}")
    if retried := plan.found.counts.get("retried"):
        out.line(f"{name}: {retried:,} that failed before are tried again")
    if plan.found.counts.get("known_failures"):
        out.line(
            f"{name}: {plan.found.counts.get('known_failures'):,} known failures wait for a change or --retry-failures"
        )
    if plan.found.blocked:
        out.line(f"{name}: a run would stop: {plan.found.blocked}")
