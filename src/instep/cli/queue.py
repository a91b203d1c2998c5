"""`instep queue …`: the phases of a pending queue. What consumers do is in `queue_keys`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli import queue_keys
from instep.cli.exit_codes import ExitCode
from instep.cli.options import JsonOption, ProjectOption, QuietOption, duration_value
from instep.cli.output import Output
from instep.cli.queue_views import (
    QueueArgument,
    SqlOption,
    key_text,
    next_step,
    parked_dict,
    show_parked,
    show_statements,
    show_status,
    verdict_lines,
)
from instep.cli.signals import terminate_like_ctrl_c
from instep.domain.texts import amount
from instep.errors import UserError
from instep.telemetry.texts import seconds_text

if TYPE_CHECKING:
    from instep.queues.backfill import Backfill
    from instep.queues.engines.queue_engine import Observation

app = typer.Typer(name="queue")


@app.callback(invoke_without_command=True)
def queue(context: typer.Context) -> None:
    """Pending queues: keys of a table that no other covers yet.

    A key is pending while it is in a table, and in none that should cover it.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("create")
def create(
    name: QueueArgument, sql: SqlOption = False, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """Create a queue beside its tables, and capture writes.

    Every write is captured from now on.

    Nothing is done when it is there already. What was written before comes in with `backfill`.

    \b
    Examples:
      instep queue create salts --sql
      instep queue create salts
    """
    from instep.app import load

    out = Output(as_json=as_json)
    with load(project).queue(name) as found:
        if sql:
            show_statements(out, found.statements())
            return
        found.create()
    out.result(
        {"name": name, "created": True},
        lambda: out.line(f"{name}: live writes are captured. {next_step(name, 'backfill')}"),
    )


@app.command("backfill")
def backfill(
    name: QueueArgument,
    sql: SqlOption = False,
    quiet: QuietOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add the keys that were there before the queue was created.

    It goes by ranges of keys, beside live writes. After Ctrl-C or a crash the next call goes on; once it is complete,
    another call starts again, which changes nothing that is right.

    \b
    Examples:
      instep queue backfill salts
      instep queue backfill salts --sql
    """
    from instep.app import load

    out = Output(as_json=as_json, quiet=quiet)
    with load(project).queue(name) as found:
        if sql:
            show_statements(out, found.backfill_statements())
            return
        with terminate_like_ctrl_c(), out.progress() as progress:
            done = found.backfill(progress=progress)
    out.result(_backfill_dict(name, done), lambda: _show_backfill(out, name, done))


@app.command("verify")
def verify(
    name: QueueArgument,
    repair: Annotated[
        bool, typer.Option("--repair", help="Offer missing keys again, then compare again.", show_default=False)
    ] = False,
    quiet: QuietOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare a queue with the anti-join it replaces.

    In both directions. Exits with 2 when they differ.

    What differs for a moment only, because the tables change during the check, is checked again. Keys that failed and
    wait for their next try are no difference, and neither are keys that reading would withdraw.

    \b
    Examples:
      instep queue verify salts
      instep queue verify salts --repair --json
    """
    from instep.app import load

    out = Output(as_json=as_json, quiet=quiet)
    with load(project).queue(name) as found, out.progress() as progress:
        seen, switched = found.verify(repair=repair, progress=progress), found.switched
    equal = seen.verdict.equal

    def show() -> None:
        for line in verdict_lines(seen.verdict):
            out.line(f"{name}: {line}")
        for what, keys in (("missing", seen.missing), ("surplus", seen.surplus)):
            if keys:
                out.line(f"{what}: {', '.join(map(key_text, keys[:20]))}{' …' if len(keys) > 20 else ''}")
        if not equal:
            out.line(next_step(name, "verify", "--repair"))
        elif not switched:
            out.line(next_step(name, "switch"))

    verdict = {**_verdict_dict(seen.verdict), "missing_keys": seen.missing, "surplus_keys": seen.surplus}
    out.result({"name": name, **verdict}, show)
    if not equal:
        raise typer.Exit(ExitCode.CHANGES)


@app.command("switch")
def switch(
    name: QueueArgument,
    back: Annotated[
        bool, typer.Option("--back", help="Read the anti-join again, as before.", show_default=False)
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let `next` read the queue instead of the anti-join.

    Refused unless the last `verify` found them equal, within a day.

    \b
    Examples:
      instep queue switch salts
      instep queue switch salts --back
    """
    from instep.app import load

    out = Output(as_json=as_json)
    with load(project).queue(name) as found:
        changed = found.switch(back=back)
    reads = "anti-join" if back else "queue"
    text = f"{name}: `instep queue next` reads the {reads}{' from now on' if changed else ' already'}."
    out.result({"name": name, "reads": reads, "changed": changed}, lambda: out.line(text))


@app.command("observe")
def observe(
    name: QueueArgument,
    since: Annotated[
        int,
        typer.Option("--since", metavar="DURATION", parser=duration_value, help="How far to look back."),
    ] = "7d",  # type: ignore[assignment]  # Typer parses defaults too, and shows them as they are written.
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the cost of reading a queue and its anti-join.

    The figures are from the database's own log.

    \b
    Examples:
      instep queue observe salts
      instep queue observe salts --since 1h --json
    """
    from instep.app import load

    out = Output(as_json=as_json)
    with load(project).queue(name) as found:
        seen = found.observe(since=timedelta(milliseconds=since))
    out.result([_observation_dict(each) for each in seen], lambda: _show_observed(out, seen))


@app.command("drop-done")
def drop_done(
    name: QueueArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.", show_default=False)
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove from disk what is done.

    These are rows of keys that are covered, and offers that were withdrawn.

    In PostgreSQL and SQLite it also removes acknowledgements of keys that the source has no more: should such a key
    come again, it is pending. Reads do not need this: they cost the same, however much is done.

    \b
    Examples:
      instep queue drop-done salts --dry-run
      instep queue drop-done salts
      instep queue drop-done salts --json
    """
    from instep.app import load

    out = Output(as_json=as_json)
    with load(project).queue(name) as found:
        rows = found.drop_done(dry_run=dry_run)
    done = "to be removed" if dry_run else "removed"
    out.result(
        {"name": name, "rows": rows, "removed": not dry_run}, lambda: out.line(f"{name}: {amount(rows, 'row')} {done}.")
    )


@app.command("status")
def status(
    name: QueueArgument,
    parked: Annotated[
        bool,
        typer.Option(
            "--parked", help="List the keys that failed too often instead, with the reasons.", show_default=False
        ),
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the phase of a queue, and what is in it.

    \b
    Examples:
      instep queue status salts
      instep queue status salts --parked --json
    """
    from instep.app import load

    out = Output(as_json=as_json)
    with load(project).queue(name) as found:
        if parked:
            holds = found.parked()
            out.result([parked_dict(*each) for each in holds.items()], lambda: show_parked(out, holds))
            return
        seen = found.status()
    out.result(seen, lambda: show_status(out, seen))


app.command("next")(queue_keys.next_keys)
app.command("ack")(queue_keys.ack)
app.command("fail")(queue_keys.fail)
app.command("unpark")(queue_keys.unpark)


@app.command("drop")
def drop(
    name: QueueArgument,
    confirmed: Annotated[bool, typer.Option("--yes", help="Yes, drop it.", show_default=False)] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a queue.

    First its capture, then its tables, then what the ledger has of its keys.

    The tables that it is about stay as they are. What was acknowledged is pending again in the next queue, unless a
    table covers it.

    \b
    Examples:
      instep queue drop salts --yes
      instep queue drop salts --yes --json
    """
    from instep.app import load

    if not confirmed:
        raise UserError(
            f"this removes queue {name}, and all acknowledgements and failures of its keys", hint="Confirm with --yes."
        )
    out = Output(as_json=as_json)
    with load(project).queue(name) as found:
        found.drop()
    out.result({"name": name, "dropped": True}, lambda: out.line(f"{name} is dropped."))


def _backfill_dict(name: str, done: Backfill) -> dict[str, Any]:
    filling = done.filling
    return {
        "name": name,
        "keys": filling.keys,
        "pending": filling.pending,
        "seconds": filling.took / 1000,
        "resumed_at": done.began_at,
    }


def _show_backfill(out: Output, name: str, done: Backfill) -> None:
    filling = done.filling
    if not filling.keys:
        out.line(f"{name}: the source has no key of the queue. If it should have some, check `where` and `keys`.")
        return
    resumed = "" if done.began_at is None else f" (the last part from key {key_text(done.began_at)} on)"
    out.line(
        f"{name}: {amount(filling.keys, 'key')} in {seconds_text(filling.took / 1000)}{resumed}, "
        f"{filling.pending:,} pending. {next_step(name, 'verify')}"
    )


def _verdict_dict(verdict: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {"equal": verdict.equal, **asdict(verdict)}


def _observation_dict(seen: Observation) -> dict[str, Any]:
    return {
        "comment": seen.comment,
        "queries": seen.queries,
        "mean_ms": seen.mean.total_seconds() * 1000,
        "p99_ms": None if seen.p99 is None else seen.p99.total_seconds() * 1000,
        "rows_read": seen.rows_read,
        "memory": seen.memory,
    }


def _show_observed(out: Output, seen: Sequence[Observation]) -> None:
    if not seen:
        out.line("The database's log shows no reads in that time.")
        return
    rows = [
        [
            each.comment,
            each.queries,
            each.mean.total_seconds() * 1000,
            None if each.p99 is None else each.p99.total_seconds() * 1000,
            None if each.rows_read is None else round(each.rows_read),
            None if each.memory is None else round(each.memory),
        ]
        for each in seen
    ]
    out.table(None, ["comment", "queries", "mean ms", "p99 ms", "rows read", "memory"], rows)
