"""`instep dispatch|serve-handlers`, and `instep letters list|requeue|drop`: requests over the bus."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import (
    EntityOption,
    JsonOption,
    MetricsOption,
    NamespaceOption,
    ProjectOption,
    QuietOption,
    duration_value,
    time_value,
)
from instep.cli.output import Output
from instep.cli.signals import terminate_like_ctrl_c
from instep.cli.texts import moment_text, ref_text
from instep.cli.workers import watching
from instep.domain.refs import PartitionRef
from instep.errors import InstepError, UserError

if TYPE_CHECKING:
    from instep.bus.bus import DeadLetter
    from instep.requests.dispatch import Dispatched


def dispatch(
    namespaces: NamespaceOption = None,
    global_entities: Annotated[
        bool, typer.Option("--global", help="The entities without a scope.", show_default=False)
    ] = False,
    watermark: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            parser=time_value,
            help="Fresh as of this time (ISO 8601; in the local zone if it names none); by default as of now.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            metavar="DURATION",
            parser=duration_value,
            help="Again and again, such as 5m, until Ctrl-C or SIGTERM.",
            show_default=False,
        ),
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the handlers of all entities to bring them up to date.

    Without --namespace and --global all that is declared: the global entities, and every namespace. It returns at
    once; `instep serve-handlers`, on any server, does the work. What was asked before is not asked again.

    \b
    Examples:
      instep dispatch
      instep dispatch --namespace 42/9970 --json
      instep dispatch --every 5m
    """
    from instep.app import load

    out, found = Output(as_json=as_json), load(project)
    if every is None:
        time = None if watermark is None else datetime.fromtimestamp(watermark / 1000, UTC)
        _show(out, found.dispatch(namespaces or (), global_entities=global_entities, watermark=time))
        return
    if watermark is not None:
        raise UserError("--every asks for everything up to now", hint="Leave --watermark out.")

    def tell(asked: Sequence[Dispatched] | InstepError) -> None:
        if isinstance(asked, InstepError):
            out.note(str(asked))
        else:
            _show(out, asked)
            sys.stdout.flush()

    # To be told to stop is how it ends.
    with suppress(KeyboardInterrupt), terminate_like_ctrl_c():
        found.dispatch_every(
            timedelta(milliseconds=every), namespaces or (), global_entities=global_entities, tell=tell
        )


def _show(out: Output, asked: Sequence[Dispatched]) -> None:
    def show() -> None:
        for each in asked:
            number = len(each.entities)
            who = "1 entity is" if number == 1 else f"{number:,} entities are"
            out.line(f"{each.scope}: {who} asked to be fresh as of {moment_text(each.watermark)}.")

    out.result([each.as_dict() for each in asked], show)


def serve_handlers(
    entities: EntityOption = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when no request can be taken.", show_default=False)
    ] = False,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="NAME", help="auto, inline or spark; default: the project's.")
    ] = None,
    metrics: MetricsOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Do what `instep dispatch`, or another program, asks for over the bus.

    Each entity has a handler, none waits for another, and any number of servers may serve the same ones. It serves
    until Ctrl-C or SIGTERM, which stop it cleanly (exit code 0): the requests in work go back, for other servers. What
    fails is tried again, and is a dead letter in the end: see `instep letters`. Prints a line for each thing that
    happens; with --json a line of JSON.

    \b
    Examples:
      instep serve-handlers
      instep serve-handlers --entity User --entity MergeRequest
      instep serve-handlers --until-idle --json
    """
    from instep.app import load

    progress = watching(as_json=as_json, quiet=quiet)
    try:
        with terminate_like_ctrl_c():
            load(project).serve_handlers(
                entities, until_idle=until_idle, engine=engine, progress=progress, metrics=metrics
            )
    except KeyboardInterrupt:
        # To be told to stop is how a server ends.
        progress.say("handlers", "stopped; the requests in work went back, for others to take")


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
    """List dead letters, and why each was given up.

    An entity has one at most in each scope: the newest. A later request that succeeds removes it.

    \b
    Examples:
      instep letters list
      instep letters list --entity MergeRequest --json
    """
    from instep.app import load

    found = load(project).letters(entities)
    out = Output(as_json=as_json)
    out.result([_as_dict(each) for each in found], lambda: _show_dead_letters(out, found))


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
        what = "dead letters are named, and --all is given" if refs else "no dead letters are named"
        raise UserError(what, hint="Name them as `instep letters list` does, or use --all.")
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


def _show_dead_letters(out: Output, found: Sequence[DeadLetter]) -> None:
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
