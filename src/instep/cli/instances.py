"""`instep taint|rebuild|expire|promote|history|lineage`: instances of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import (
    AllowEmptyOption,
    GenerationOption,
    JsonOption,
    ProjectOption,
    RefArgument,
    time_value,
    user_text,
)
from instep.cli.output import Output
from instep.domain.fingerprint import changed_parts, digest
from instep.errors import UserError
from instep.telemetry.texts import id_text, moment_text, ref_text, when_text

if TYPE_CHECKING:
    from instep.answers.instances import Change, Instance


def taint(
    ref: RefArgument,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Kept in its history.", show_default=False)] = "",
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Mark a partition as wrong, so that it is built again.

    The next `instep run` builds everything again beside the served index, which stays until that is done. Wants that
    are not satisfied yet follow the new instance.

    \b
    Examples:
      instep taint Document --why "broken export of March"
      instep taint Document@global --json
    """
    from instep.app import load

    left = load(project).taint(ref, generation=generation, why=why, by=user_text())
    out = Output(as_json=as_json)
    out.result(left, lambda: show_left(out, left, "is tainted"))


def rebuild(
    ref: RefArgument,
    generation: GenerationOption = None,
    allow_empty: AllowEmptyOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build a partition again, though nothing is wrong with it.

    It only asks: the next `instep run` builds, beside the served index. `instep run --full-refresh` does both at once.

    \b
    Examples:
      instep rebuild Document
      instep rebuild Document@global --json
      instep rebuild Person@42/9970 --allow-empty        all of its rows are gone, and that is right
    """
    from instep.app import load

    left = load(project).rebuild(ref, generation=generation, allow_empty=allow_empty, by=user_text())
    out = Output(as_json=as_json)
    out.result(left, lambda: show_left(out, left, "is to be replaced"))


def expire(
    refs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[REF]...",
            help="Partitions such as Document; by default those that are older than their time to live.",
            show_default=False,
        ),
    ] = None,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Expire partitions past their time to live, or those named.

    The time to live is the `ttl` of an entity.

    Runs do that too: this command does it now, or before the time. The next `instep run` rebuilds it, beside what is
    served.

    \b
    Examples:
      instep expire
      instep expire Document --json
    """
    from instep.app import load

    if generation is not None and not refs:
        raise UserError(
            "--generation needs the name of a partition", hint="Such as: instep expire Document --generation v2"
        )
    done = load(project).expire(refs, generation=generation, by=user_text())
    out = Output(as_json=as_json)

    def show() -> None:
        if not done:
            out.line("Nothing is older than its time to live.")
        for left in done:
            show_left(out, left, "has expired")

    out.result(done, show)


def promote(
    ref: RefArgument,
    generation: Annotated[
        str,
        typer.Option(
            "--generation",
            metavar="NAME",
            help="Name of the generation; '' is the one without a name.",
            show_default=False,
        ),
    ],
    allow_deletes: Annotated[
        bool,
        typer.Option("--allow-deletes", help="Even if it holds much less than what is served now.", show_default=False),
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Serve it even if it is empty.", show_default=False)
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve another generation, in one step.

    `instep run --generation NAME` builds it first, beside what is read now. It is checked like every build, and some
    documents are read back: it is refused if it is empty or tainted, lacks too many documents, or differs from what was
    recorded. The generation that was read before stays, so that this can be taken back. Exits with 75 while a job works
    on the entity.

    \b
    Examples:
      instep promote Document --generation v2
      instep promote Document --generation ''        back to the one without a name
    """
    from instep.answers.results import promotion_answer
    from instep.app import load

    done = load(project).promote(ref, generation, allow_deletes=allow_deletes, allow_empty=allow_empty, by=user_text())
    out = Output(as_json=as_json)

    def show() -> None:
        name = ref_text(done.ref, done.generation)
        if not done.changed:
            out.line(f"{name} is already what readers get: instance {id_text(done.instance)}.")
            return
        out.line(
            f"Readers now get {name}: instance {id_text(done.instance)}. Before: {ref_text(done.ref, done.before)}."
        )

    out.result(promotion_answer(done), show)


def history(
    ref: RefArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of instances to list.")] = 20,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the instances of a partition, newest first.

    Shows how each was made, and how it ended.

    An instance is one build; the window is what its last job looked at. Whole ids, and all that is known
    of each, are in the JSON.

    \b
    Examples:
      instep history Document
      instep history Document@global --limit 5 --json
    """
    from instep.app import load

    found = load(project).history(ref, limit=limit)
    out = Output(as_json=as_json)
    out.result(found, lambda: _show(out, found))


def _show(out: Output, found: Sequence[Instance]) -> None:
    if not found:
        out.line("No instances: it has not been built yet. `instep run` builds it.")
        return
    rows = [
        [
            id_text(each.uuid),
            f"{each.state} (left)" if each.left and each.usable else str(each.state),
            f"{each.reason} ({each.generation})" if each.generation else str(each.reason),
            id_text(each.job) if each.job else None,
            None if each.watermark is None else when_text(each.watermark, found[0].created_at),
            id_text(each.previous) if each.previous else None,
        ]
        for each in found
    ]
    # Six narrow columns: they fit in a terminal of 80.
    out.table(None, ["instance", "state", "made for", "job", "as of", "previous"], rows)
    known = {each.uuid: each for each in found}
    for each in found:
        for line in _details(each, known.get(each.previous or "")):
            out.line(line)


def _details(each: Instance, previous: Instance | None) -> list[str]:
    ended = f"ended {moment_text(each.ended_at)}: {each.ended}" if each.ended_at is not None else None
    parts = [_window(each), _code(each, previous), ended]
    texts = [text for text in parts if text]
    name = id_text(each.uuid)
    return [f"{name if place == 0 else ' ' * len(name)}  {text}" for place, text in enumerate(texts)]


def _window(each: Instance) -> str | None:
    if each.window is None:
        return None
    since = f"after {moment_text(each.window.floor)}, " if each.window.floor else ""
    return f"window {since}up to {moment_text(each.window.target)}{_refreshes(each)}"


def _refreshes(each: Instance) -> str:
    if each.refreshed_by is None:
        return ""
    job = id_text(each.refreshed_by)
    if each.state == "Refreshing":
        return f", job {job} refreshes it"
    return f", refreshed by job {job}" if each.refreshes < 2 else f", refreshed {each.refreshes:,} times, last by {job}"


def _code(each: Instance, previous: Instance | None) -> str | None:
    """The fingerprint and the commit, and what changed in the fingerprint since the instance before."""
    if each.fingerprint is None:
        return None
    text = f"fingerprint {id_text(digest(dict(each.fingerprint)))}"
    if each.revision:
        text += f", revision {id_text(each.revision)}{'+' if each.revision.endswith('+') else ''}"
    if previous is None or previous.fingerprint is None:
        return text
    changed = changed_parts(each.fingerprint, previous.fingerprint)
    return f"{text}, {', '.join(changed)} changed" if changed else text


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    HTML = "html"


def lineage(
    ref: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            help="A partition (Document, which is Document@global), or the UUID of an instance or its beginning.",
            show_default=False,
        ),
    ],
    at: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            parser=time_value,
            help="Show it as it was known at this time (ISO 8601; in the local zone if it names none).",
            show_default=False,
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="Form of the answer; html is one page.")] = Format.TEXT,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what an instance was made from, and what from it.

    Directly and indirectly.

    \b
    Examples:
      instep lineage Document
      instep lineage Document --at 2026-01-31T12:00 --json
      instep lineage Document --format html > lineage.html
    """
    from instep.app import load
    from instep.cli import graphs

    found = load(project).lineage(ref, at=None if at is None else datetime.fromtimestamp(at / 1000, UTC))
    out = Output(as_json=as_json or form is Format.JSON)

    def show() -> None:
        shown = {Format.HTML: graphs.as_html, Format.DOT: graphs.as_dot}.get(form, graphs.as_text)
        for line in shown(found):
            out.line(line)

    out.result(found, show)


def show_left(out: Output, left: Change, what: str) -> None:
    """Print the change of the old instance, and the next step."""
    name = ref_text(left.ref, left.generation)
    if left.old is not None and left.changed:
        out.line(f"{name}: instance {id_text(left.old.uuid)} {what}. It is served until there is a new one.")
    elif left.old is None:
        out.line(f"{name} has not been built yet.")
    else:
        out.line(f"{name} is already waiting to be built (made for: {left.old.reason}).")
    out.line(_next(left))


def _next(left: Change) -> str:
    if left.new is not None and left.new.worked_on_by:
        return f"Job {id_text(left.new.worked_on_by)} builds it now."
    if left.wanted:
        return "It is wanted: the next `instep run` or worker builds it."
    what = f"{ref_text(left.ref)} --generation {left.generation}" if left.generation else ref_text(left.ref)
    run = f"instep run {what}" if left.generation else "instep run"
    if left.new is not None and left.new.reason == "failure":
        run += " --retry-failures"  # Documents that are known to fail.
    return f"The next `{run}` builds it. For a worker to do it: instep want {what}"
