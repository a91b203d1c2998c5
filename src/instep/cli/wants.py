"""`instep want|wants|cancel`: what users ask for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import (
    GenerationOption,
    JsonOption,
    NamespaceOption,
    ProjectOption,
    duration_value,
    time_value,
    user_text,
)
from instep.cli.output import Output
from instep.domain.refs import PartitionRef
from instep.telemetry.texts import ago_text, id_text, moment_text, ref_text, refs_text, when_text

if TYPE_CHECKING:
    from instep.answers.instances import Instance
    from instep.answers.wants import Want


def wants(
    ref: Annotated[
        str | None, typer.Argument(metavar="[REF]", help="Only wants on this partition.", show_default=False)
    ] = None,
    ended: Annotated[bool, typer.Option("--all", help="List wants that have ended, too.", show_default=False)] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of wants to list.")] = 100,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List wants and their state, newest first.

    Idle: no job works on it yet. Building: a job does. UpstreamBuilding: it waits for what it is made from.

    \b
    Examples:
      instep wants
      instep wants Document --all
      instep wants --json
    """
    from instep.app import load

    found = load(project).wants(ref, ended=ended, limit=limit)
    out = Output(as_json=as_json)
    out.result(found, lambda: _show(out, found, ended=ended))


def _show(out: Output, found: Sequence[Want], *, ended: bool) -> None:
    if not found:
        out.line("No wants." if ended else "No want is open. Those that have ended: instep wants --all")
        return
    rows = [
        [
            id_text(each.id),
            str(each.state),
            refs_text([PartitionRef.parse(ref) for ref in each.refs], each.generation),
            "any" if each.needed is None else when_text(each.needed, each.seen_at),
            ago_text(each.created_at, each.seen_at),
            each.by.partition(" ")[0] or None,
        ]
        for each in found
    ]
    # Six narrow columns: they fit in a terminal of 80.
    out.table(None, ["want", "state", "entities", "as of", "asked", "by"], rows)
    for each in found:
        if each.error:
            again = f" (attempt {each.attempts} of {each.max_attempts})" if each.ended_at is None else ""
            out.line(f"{id_text(each.id)}: {each.error}{again}")
    generations = sorted({each.generation for each in found if each.startable})
    if generations:
        runs = (f"instep run --generation {each}" if each else "instep run" for each in generations)
        out.line(f"Wants that can begin now are built by a worker, or by: {'; '.join(runs)}")


def want(
    refs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[REF]...",
            help="Partitions: Document, which is Document@global; by default all that are declared.",
            show_default=False,
        ),
    ] = None,
    namespaces: NamespaceOption = None,
    fresh_within: Annotated[
        int | None,
        typer.Option(
            metavar="DURATION",
            parser=duration_value,
            help="Maximum age of the index when it is asked for, such as 1h.",
            show_default=False,
        ),
    ] = None,
    as_of: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            parser=time_value,
            help="With all changes up to this time (ISO 8601; in the local zone if it names none).",
            show_default=False,
        ),
    ] = None,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask for partitions to be there, and fresh enough.

    It returns at once. Any worker, or the next `instep run`, builds what is missing or too old; wants of many users
    on one partition share one build. Without --fresh-within and --as-of, any Live build is fresh enough. What is
    named is one want; without a name there is one for each entity (a list, with --json).

    \b
    Examples:
      instep want --fresh-within 5m
      instep want Document
      instep want --namespace 42/9970 --json
      instep want Document@global Ticket --fresh-within 1h
      instep want Document --as-of 2026-01-31T12:00 --json
    """
    from instep.app import load

    opened = load(project)
    fresh = None if fresh_within is None else timedelta(milliseconds=fresh_within)
    time = None if as_of is None else datetime.fromtimestamp(as_of / 1000, UTC)
    by, out = user_text(), Output(as_json=as_json)
    if refs:
        found = opened.want(
            refs, namespaces=namespaces or (), fresh_within=fresh, as_of=time, generation=generation, by=by
        )
        out.result(found, lambda: _show_want(out, found))
        return
    made = opened.want_all(namespaces=namespaces or (), fresh_within=fresh, as_of=time, generation=generation, by=by)

    def show() -> None:
        for each in made:
            _show_want(out, each)

    out.result(made, show)


def _show_want(out: Output, want: Want) -> None:
    out.line(f"Want {id_text(want.id)} is {want.state}.")
    if want.state == "Successful":
        for ref, each in zip(want.refs, want.found, strict=True):
            out.line(f"{_name(ref, want)} is there{_as_of(each)}.")
        return
    for ref, each in want.lacking:
        out.line(f"{_name(ref, want)}: {_lack(want, each)}.")
    out.line(_next(want))


def _name(ref: str, want: Want) -> str:
    return ref_text(PartitionRef.parse(ref), want.generation)


def _next(want: Want) -> str:
    """The next step for a want that waits."""
    if want.upstream:
        return f"It waits for its upstream: want {', '.join(map(id_text, want.upstream))}."
    if want.needed is not None and want.needed > want.seen_at:
        return "A worker looks for changes then; an `instep run` after that does too."
    if want.state == "Building" and want.in_time:
        return "It is satisfied when that has ended well; see `instep wants`."
    there = all(each is not None and each.usable for _, each in want.lacking)
    run = f"instep run --generation {want.generation}" if want.generation else "instep run"
    return f"The next `{run}` or worker {'looks for changes' if there else 'builds it'}; see `instep wants`."


def _lack(want: Want, current: Instance | None) -> str:
    needed = want.needed
    if current is None:
        return "not built yet"
    if current.worked_on_by:
        what = "builds" if current.state == "Building" else "refreshes"
        window = "" if needed is None or current.window is None else f", up to {moment_text(current.window.target)}"
        return f"job {id_text(current.worked_on_by)} {what} it{window}"
    if current.state == "Missing":
        return "to be built"
    wanted = "" if needed is None else f", and wanted as of {moment_text(needed)}"
    return f"Live{_as_of(current)}{wanted}"


def _as_of(instance: Instance | None) -> str:
    watermark = instance.watermark if instance is not None else None
    return "" if watermark is None else f" as of {moment_text(watermark)}"


def cancel(
    want_id: Annotated[
        str,
        typer.Argument(metavar="WANT", help="The want's id, or its beginning; see `instep wants`.", show_default=False),
    ],
    why: Annotated[str, typer.Option(metavar="TEXT", help="Kept with the want.", show_default=False)] = "",
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a want.

    No job is started for it any more. A running job goes on: `instep job stop` stops it.

    \b
    Examples:
      instep cancel 1f0c
      instep cancel 1f0c --why "asked twice" --json
    """
    from instep.app import load

    found = load(project).cancel_want(want_id, by=user_text(), why=why)
    out = Output(as_json=as_json)
    jobs = dict.fromkeys(each.worked_on_by for each in found.found if each is not None and each.worked_on_by)

    def show() -> None:
        out.line(f"Want {id_text(found.id)} is canceled.")
        for job in jobs:
            out.line(f"Job {id_text(str(job))} goes on. Stop it: instep job stop {id_text(str(job))}")

    out.result(found, show)
