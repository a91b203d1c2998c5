"""`instep ledger migrate|verify|rebuild`, and `instep gc`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.exit_codes import ExitCode
from instep.cli.options import JsonOption, ProjectOption, duration_value
from instep.cli.output import Output
from instep.domain.texts import amount
from instep.telemetry.texts import visible

if TYPE_CHECKING:
    from instep.ledger.verification import Verified


app = typer.Typer(name="ledger")


@app.callback(invoke_without_command=True)
def ledger(context: typer.Context) -> None:
    """Make or upgrade the ledger; verify or rebuild its state.

    Its log of events says what the state has to be.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("migrate")
def migrate(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Make the ledger's tables, or upgrade those of an old one.

    Nothing else is done.

    Any command that writes does so by itself; this is for a step of its own, before servers are replaced by newer ones.

    \b
    Examples:
      instep ledger migrate
    """
    from instep.app import load

    ledger = load(project).migrate_ledger()
    Output(as_json=as_json).result({"ledger": ledger}, lambda: typer.echo(f"{ledger} is up to date."))


@app.command("verify")
def verify(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Replay the log, and compare the stored state with the result. Changes nothing.

    Exits with 1 when something differs.

    \b
    Examples:
      instep ledger verify
      instep ledger verify --json
    """
    from instep.app import load

    found = load(project).verify_ledger()
    out = Output(as_json=as_json)

    def show() -> None:
        _show(out, found)
        if not found.differences:
            out.line("The stored state agrees with the log.")

    out.result(_as_dict(found), show)
    if found.differences:
        out.note("hint: `instep ledger rebuild` rebuilds it from the log.")
        raise typer.Exit(ExitCode.ERROR)


@app.command("rebuild")
def rebuild(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Replay the log, and replace the stored state.

    In one step. The log itself does not change.

    Lists what differed.

    \b
    Examples:
      instep ledger rebuild
      instep ledger rebuild --json
    """
    from instep.app import load

    found = load(project).rebuild_ledger()
    out = Output(as_json=as_json)

    def show() -> None:
        _show(out, found)
        out.line("Rebuilt." if found.differences else "Nothing differed.")

    out.result(_as_dict(found), show)


def _as_dict(found: Verified) -> dict[str, Any]:
    return {
        "events": found.events,
        "forgotten": found.forgotten,
        "skipped": dict(found.skipped),
        "skips": [asdict(each) for each in found.skips],
        "differences": list(found.differences),
    }


def _show(out: Output, found: Verified) -> None:
    before = f", and the state after {found.forgotten:,} before them, which are forgotten" if found.forgotten else ""
    out.line(amount(found.events, "event") + before)
    for name, number in sorted(found.skipped.items()):
        out.line(f"{number:,} skipped: {name}")
        told = [each for each in found.skips if each.name == name]
        for each in told:
            out.line(visible(f"  event {each.sequence}: {each.reason}"))
        if number > len(told) and name != "missing":
            out.line("  …")
    for difference in found.differences:
        out.line(visible(f"differs: {difference}"))


def gc(
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            metavar="DURATION",
            parser=duration_value,
            help="Keep records that are younger than this, such as `7d`. By default `retention` of the project.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be deleted.", show_default=False)
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget jobs, wants and instances that ended long ago.

    Workers do so by themselves after their jobs, a little at a time. These jobs stay: the newest of each partition,
    those that made what is served, and those within the longest `deletes.window`, whose deletions still count. These
    instances stay: canonical and served ones, those that a job or an open want uses, and all that these were made from.
    Of forgotten events the state that they led to stays. Indexes are not touched: runs drop those that are not served
    any more.

    \b
    Examples:
      instep gc --dry-run
      instep gc --keep 7d
    """
    from instep.answers.results import garbage_answer
    from instep.app import load

    found = load(project).gc(keep=None if keep is None else timedelta(milliseconds=keep), dry_run=dry_run)
    out = Output(as_json=as_json)

    def show() -> None:
        if found.empty:
            out.line("Nothing is old enough to be deleted.")
            return
        for ref, number in found.by_ref.items():
            out.line(f"{ref}: {amount(number, 'instance')}")
        if found.jobs or found.slices:
            out.line(f"{amount(found.jobs, 'job')} with {amount(found.slices, 'slice')}")
        if found.events:
            out.line(f"{amount(found.events, 'event')} of the log")
        done = "Forgotten" if found.collected else "To be forgotten"
        out.line(f"{done}: {amount(len(found.instances), 'instance')}, {amount(len(found.wants), 'want')}.")

    out.result(garbage_answer(found), show)
