"""`instep letters list|requeue|drop`: requests of messages and schedules that were given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import (
    EntityOption,
    JsonOption,
    ProjectOption,
    user_text,
)
from instep.cli.output import Output
from instep.domain.refs import PartitionRef
from instep.errors import UserError
from instep.telemetry.texts import moment_text, ref_text

if TYPE_CHECKING:
    from instep.answers.wants import Letter


LettersArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[REF]...", help="Partitions, such as User or MergeRequest@42/9970.", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.", show_default=False)]

app = typer.Typer(name="letters")


@app.callback(invoke_without_command=True)
def letters(context: typer.Context) -> None:
    """List dead letters: requests that were given up.

    They came by messages and schedules.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_letters(entities: EntityOption = None, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """List dead letters, and why each was given up.

    A message is tried as often as `handlers:` says. A partition has one dead letter at most, the newest; it is gone
    when the partition has become as fresh as it asked for.

    \b
    Examples:
      instep letters list
      instep letters list --entity MergeRequest --json
    """
    from instep.app import load

    found = load(project).letters(entities)
    out = Output(as_json=as_json)
    out.result(found, lambda: _show_dead_letters(out, found))


@app.command("requeue")
def requeue(
    refs: LettersArgument = None,
    everything: AllOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try dead letters again, with all their attempts.

    Those of partitions that the project does not declare (any more) stay.

    \b
    Examples:
      instep letters requeue MergeRequest@42/9970
      instep letters requeue --all --json
    """
    from instep.app import load

    _answered(load(project).requeue_letters(_named(refs, everything), by=user_text()), "is tried again", as_json)


@app.command("drop")
def drop(
    refs: LettersArgument = None,
    everything: AllOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget dead letters.

    \b
    Examples:
      instep letters drop MergeRequest@42/9970
      instep letters drop --all --json
    """
    from instep.app import load

    _answered(load(project).drop_letters(_named(refs, everything)), "is forgotten", as_json)


def _named(refs: Sequence[str] | None, everything: bool) -> Sequence[str] | None:
    """None for all of them."""
    if bool(refs) == everything:
        what = "dead letters cannot be named together with --all" if refs else "no dead letter is named"
        raise UserError(what, hint="Name them as `instep letters list` does, or use --all.")
    return refs or None


def _answered(done: Sequence[PartitionRef], what: str, as_json: bool) -> None:
    def show() -> None:
        for ref in done:
            out.line(f"{ref_text(ref)} {what}.")
        if not done:
            out.line(f"No dead letter {what}.")

    out = Output(as_json=as_json)
    out.result([str(ref) for ref in done], show)


def _show_dead_letters(out: Output, found: Sequence[Letter]) -> None:
    if not found:
        out.line("There are no dead letters.")
        return
    rows = [
        [
            ref_text(each.ref),
            "any" if each.watermark is None else moment_text(each.watermark),
            each.attempts,
            moment_text(each.at),
            each.reason,
        ]
        for each in found
    ]
    out.table(None, ["partition", "asked as of", "attempts", "given up", "why"], rows)
