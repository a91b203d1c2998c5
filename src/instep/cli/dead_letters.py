"""`instep letters list|requeue|drop`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import EntityOption, JsonOption, ProjectOption
from instep.cli.output import Output, ref_text
from instep.cli.times import moment_text
from instep.domain.refs import PartitionRef
from instep.errors import UserError

if TYPE_CHECKING:
    from instep.bus.bus import DeadLetter

LettersArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[REF]...", help="Whose: User, MergeRequest@42/9970.", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.", show_default=False)]

app = typer.Typer(name="letters")


@app.callback(invoke_without_command=True)
def letters(context: typer.Context) -> None:
    """Dead letters: requests that handlers gave up."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_letters(entities: EntityOption = None, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """What was given up, and why.

    An entity has one at most in each scope: the newest. A later request that succeeds removes it.

    \b
    Examples:
      instep letters list
      instep letters list --entity MergeRequest --json
    """
    from instep.app import load

    found = load(project).letters(entities)
    out = Output(as_json=as_json)
    out.result([_as_dict(each) for each in found], lambda: _show(out, found))


@app.command("requeue")
def requeue(
    refs: LettersArgument = None,
    everything: AllOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have them tried again, with all their attempts.

    \b
    Examples:
      instep letters requeue MergeRequest@42/9970
      instep letters requeue --all --json
    """
    from instep.app import load

    _answered(load(project).requeue_letters(_named(refs, everything)), "is tried again", as_json)


@app.command("drop")
def drop(
    refs: LettersArgument = None,
    everything: AllOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget them.

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
        raise UserError("say which dead letters", hint="Name them as `instep letters list` does, or say --all.")
    return refs or None


def _answered(done: Sequence[PartitionRef], what: str, as_json: bool) -> None:
    def show() -> None:
        for ref in done:
            out.line(f"{ref_text(ref)} {what}.")
        if not done:
            out.line("There are no dead letters.")

    out = Output(as_json=as_json)
    out.result([str(ref) for ref in done], show)


def _as_dict(letter: DeadLetter) -> dict[str, object]:
    return {
        "ref": str(letter.ref),
        "watermark": letter.request.watermark // 1_000,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "at": letter.at,
    }


def _show(out: Output, found: Sequence[DeadLetter]) -> None:
    if not found:
        out.line("There are no dead letters.")
        return
    rows = [
        [
            ref_text(each.ref),
            moment_text(each.request.watermark // 1_000),
            each.attempts,
            moment_text(each.at),
            each.reason,
        ]
        for each in found
    ]
    out.table(None, ["partition", "asked as of", "attempts", "given up", "why"], rows)
