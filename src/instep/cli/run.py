"""`instep run`: bring indexes in step with their sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.completion import entity_names
from instep.cli.exit_codes import ExitCode, report
from instep.cli.options import (
    AllowDeletesOption,
    AllowEmptyOption,
    EngineOption,
    EveryOption,
    FullListingOption,
    FullRefreshOption,
    GenerationOption,
    JsonOption,
    MetricsOption,
    ProjectOption,
    QuietOption,
    RetryFailuresOption,
    WatchOption,
)
from instep.cli.output import Output
from instep.cli.plan import known_failures_text, note_unplaced, read_plan
from instep.cli.signals import terminate_like_ctrl_c
from instep.cli.workers import serve, watching
from instep.errors import Interrupted, UserError
from instep.telemetry.texts import ref_text, seconds_text, state_text

if TYPE_CHECKING:
    from instep.jobs.entity_result import EntityResult


def run(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ENTITY|PLAN.json]...",
            help="Entities by name, or one saved plan; default: all.",
            autocompletion=entity_names,
        ),
    ] = None,
    engine: EngineOption = None,
    full_refresh: FullRefreshOption = False,
    retry_failures: RetryFailuresOption = False,
    allow_deletes: AllowDeletesOption = False,
    allow_empty: AllowEmptyOption = False,
    full_listing: FullListingOption = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            help=(
                "Time to wait for another run on the same entity; for one whose job is shared, until it makes progress."
            ),
        ),
    ] = 600.0,
    generation: GenerationOption = None,
    watch: WatchOption = False,
    every: EveryOption = 2.0,
    metrics: MetricsOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring the indexes in step with their sources. After an interruption the next run resumes the work.

    Dependencies of an entity are built first if they are missing.

    Exits with 3 when it finished and some documents failed: see `instep failures`. Also when not all of a source could
    be seen: then it indexes the visible part, and deletes nothing.

    \b
    Examples:
      instep run
      instep run Document --full-refresh
      instep run Document --generation v2
      instep run plan.json
      instep run --watch
    """
    from instep.app import load

    options: dict[str, Any] = {
        "full_refresh": full_refresh,
        "retry_failures": retry_failures,
        "allow_deletes": allow_deletes,
        "allow_empty": allow_empty,
        "full_listing": full_listing,
        "generation": generation,
    }
    chosen = {name for name, value in options.items() if value not in (False, None)}
    if watch:
        if chosen - {"allow_deletes"} or any(each.endswith(".json") for each in what or ()):
            raise UserError(
                "--watch follows what changes from now on, and takes no plan, generation, --full-refresh, "
                "--retry-failures, --allow-empty or --full-listing",
                hint="Run once with these, then watch.",
            )
        progress = watching(as_json=as_json, quiet=quiet)
        serve(
            what, project, watch=every, allow_deletes=allow_deletes, engine=engine, metrics=metrics, progress=progress
        )
        return
    out = Output(as_json=as_json, quiet=quiet)
    saved = read_plan(Path(what[0])) if what and len(what) == 1 and what[0].endswith(".json") else None
    if saved and chosen:
        raise UserError("a saved plan has its own options", hint="Plan again with the options you want.")
    opened = load(project or (saved.root if saved else None))
    with terminate_like_ctrl_c(), out.progress() as progress:
        try:
            results = opened.run(
                saved.entities if saved else what,
                **(saved.options if saved else options),
                engine=engine,
                wait=wait,
                progress=progress,
                metrics=metrics,
                expected=saved.digests if saved else None,
            )
        except KeyboardInterrupt as error:
            if notes := getattr(error, "__notes__", None):
                raise Interrupted(notes[-1]) from error
            raise
    if not what:
        note_unplaced(out, opened.project)
    finish(out, results)


def finish(out: Output, results: Sequence[EntityResult]) -> None:
    """Show the results of a run, and leave with their exit code."""
    from instep.answers.runs import Runs

    out.result([*Runs(results).answers()] if out.as_json else None, lambda: _show(out, results))
    codes = [report(each.problem, as_json=False) for each in results if each.problem]
    if codes:
        raise typer.Exit(min(codes))
    if any(each.failed for each in results):
        raise typer.Exit(ExitCode.ERROR)
    if any(each.partial for each in results):
        raise typer.Exit(ExitCode.FAILURES)


def _show(out: Output, results: Sequence[EntityResult]) -> None:
    rows = []
    for each in results:
        counts = each.counts
        rows.append(
            [
                ref_text(each.ref, each.generation),
                state_text(each.state_name).replace("_", " "),
                counts.written,
                counts.skipped + each.unchanged,
                counts.deleted,
                counts.failed,
                counts.rows_written,
                seconds_text(each.seconds),
            ]
        )
    # Eight narrow columns: they fit in a terminal of 80.
    out.table(None, ["entity", "state", "written", "same", "deleted", "failed", "rows", "time"], rows)
    for each in results:
        name = ref_text(each.ref, each.generation)
        if each.engine == "inline":
            out.line(f"{name}: ran inline, without a JVM")
        if each.cpu:
            here, there = each.cpu
            out.line(f"{name}: {here:.1f} s of CPU in the driver, {there:.1f} s in tasks: {each.cpu.share:.0%} of it")
        if any(each.spent):
            from instep.answers.spending import spent_answer

            out.line(f"{name}: {spent_answer([each.spent])}")
        for note in dict.fromkeys(each.notes):
            out.line(f"{name}: {note}")
        if before := each.known_failures:
            out.line(f"{name}: {known_failures_text(before)}")
    if any(each.counts.failed or each.known_failures for each in results):
        out.line("See what failed, and why: instep failures")
