"""`instep plan`, and the file in which a plan is saved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep import __version__
from instep.cli.exit_codes import ExitCode, report
from instep.cli.options import (
    AllowDeletesOption,
    AllowEmptyOption,
    EntitiesArgument,
    FullListingOption,
    FullRefreshOption,
    GenerationOption,
    JsonOption,
    ProjectOption,
    QuietOption,
    RetryFailuresOption,
)
from instep.cli.output import Output
from instep.domain.refs import generation_text
from instep.errors import UserError
from instep.telemetry.texts import ref_text

if TYPE_CHECKING:
    from instep.answers.plan import Plan
    from instep.project import Project

_FORMAT = "instep-plan-1"


def plan(
    entities: EntitiesArgument = None,
    save: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Save the plan, for `instep run FILE`.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="List every document, with the reason.")] = False,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="List the files that no `include` matches.", show_default=False)
    ] = False,
    full_refresh: FullRefreshOption = False,
    retry_failures: RetryFailuresOption = False,
    allow_deletes: AllowDeletesOption = False,
    allow_empty: AllowEmptyOption = False,
    full_listing: FullListingOption = False,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what a run would do, and why. Writes no state; exits with 2 when changes are pending, else with 3 when not
    all of a source could be seen. An entity that cannot be planned does not hide the others: the exit code is then 1,
    or 75 when a later try may succeed.

    \b
    Examples:
      instep plan
      instep plan Document --explain
      instep plan Document --skipped
      instep plan -o plan.json && instep run plan.json
    """
    from instep.app import load

    out = Output(as_json=as_json, quiet=quiet)
    opened = load(project)
    options: dict[str, Any] = {
        "full_refresh": full_refresh,
        "retry_failures": retry_failures,
        "allow_deletes": allow_deletes,
        "allow_empty": allow_empty,
        "full_listing": full_listing,
        "generation": generation,
    }
    with out.progress() as progress:
        explained = explain or save is not None
        plans = opened.plan(entities, **options, explain=explained, skipped=skipped, progress=progress)
    if save:
        write_plan(save, opened.project, plans, options)
    shown = plans if explain else [each.model_copy(update={"changes": None}) for each in plans]
    out.result(shown, lambda: _show(out, plans, explain=explain))
    if not entities:
        note_unplaced(out, opened.project)
    if save:
        out.note(f"saved to {save}; run exactly this with: instep run {save}")
    codes = [report(each.error, as_json=False) for each in plans if each.error]
    if codes:
        raise typer.Exit(min(codes))
    if any(each.pending for each in plans):
        raise typer.Exit(ExitCode.CHANGES)
    if any(each.problems for each in plans):
        raise typer.Exit(ExitCode.FAILURES)


def note_unplaced(out: Output, project: Project) -> None:
    """Name the entities that are passed over because they have a scope, and no namespace is declared."""
    if told := project.passed_over:
        out.note(f"warning: {told}")


def _show(out: Output, plans: Sequence[Plan], *, explain: bool) -> None:
    rows = []
    for each in plans:
        counts = each.counts
        rows.append(
            [
                ref_text(each.ref, each.generation),
                "-" if each.problem else str(each.kind),
                counts.get("new"),
                counts["changed"] + counts["retried"] if "changed" in counts else None,
                counts.get("deleted"),
                counts.get("unchanged"),
                each.slices,
                each.work if each.units or not each.slices else None,
            ]
        )
    out.table(None, ["entity", "plan", "new", "changed", "deleted", "same", "slices", "est. rows"], rows)
    for each in plans:
        _show_reasons(out, each)
        if explain:
            for change in each.changes or ():
                out.line(f"  {change.action:<7} {change.uri}  ({change.why})")
        for uri in each.skipped or ():
            out.line(f"  skipped {uri}  (no `include` matches it)")
    if not any(each.pending or each.problem or each.problems for each in plans):
        out.line("Nothing to do.")


def _show_reasons(out: Output, each: Plan) -> None:
    name = generation_text(each.ref, each.generation)
    for why in each.why:
        out.line(f"{name}: {why}")
    if each.waits_for:
        out.line(f"{name}: waits for {', '.join(map(str, each.waits_for))}")
    if each.pending:
        out.line(f"{name}: runs {each.engine.name}: {each.engine.reason}")
        out.line(f"{name}: about {each.engine.work_per_second:,.0f} rows a second ({each.engine.pace_from})")
    if each.cost:
        out.line(f"{name}: {each.cost}")
    if each.compared:
        out.line(f"{name}: {each.compared}")
    for warning in each.warnings:
        out.line(f"{name}: {warning}")
    for problem in each.problems:
        out.line(f"{name}: not all of the source can be read, and what could not be read is not deleted: {problem}")
    if retried := each.counts.get("retried"):
        out.line(f"{name}: {retried:,} that failed before are tried again")
    if known := each.counts.get("known_failures"):
        out.line(f"{name}: {known_failures_text(known)}")
    if each.refusal:
        out.line(f"{name}: a run would stop: {each.refusal}")


def known_failures_text(number: int) -> str:
    """`12 that failed before: …`, for plans and runs."""
    again = "tried again when changed, or by --retry-failures (of a topic by --full-refresh)"
    return f"{number:,} that failed before: {again}"


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A saved plan: `digests` by reference, and the options that it was made with."""

    root: Path
    digests: dict[str, str]
    options: dict[str, Any]

    @property
    def entities(self) -> list[str]:
        return [ref.partition("@")[0] for ref in self.digests]


def write_plan(file: Path, project: Project, plans: Sequence[Plan], options: dict[str, Any]) -> None:
    from instep.answers.answer import as_json

    value: dict[str, Any] = {
        "format": _FORMAT,
        "instep": __version__,
        "root": str(project.root),
        "options": options,
        "plans": as_json([each for each in plans if each.problem is None]),
    }
    try:
        file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(file)) from None


def read_plan(file: Path) -> SavedPlan:
    hint = "Save one with: instep plan -o plan.json"
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(file), hint=hint) from None
    except ValueError:
        raise UserError("is not a saved plan: it is not JSON", where=str(file), hint=hint) from None
    try:
        if value["format"] != _FORMAT:
            raise UserError(f"is a plan of another format ({value['format']!r})", where=str(file), hint=hint)
        options = value["options"]
        return SavedPlan(
            root=Path(value["root"]),
            digests={str(each["ref"]): str(each["digest"]) for each in value["plans"]},
            options={
                **{name: bool(options[name]) for name in ("full_refresh", "retry_failures", "allow_deletes")},
                **{name: bool(options.get(name, False)) for name in ("allow_empty", "full_listing")},
                "generation": options.get("generation"),
            },
        )
    except (KeyError, TypeError):
        raise UserError("is not a saved plan, or was changed", where=str(file), hint=hint) from None
