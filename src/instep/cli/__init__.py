"""The command line. Commands import what they need when they run: `instep --help` stays quick.

A command is a function in a module of its own name, added to `app` below. It prints through
`output.Output`, raises `UserError`, and leaves by `typer.Exit(ExitCode.…)` when it has more to say
than yes; `main` does the rest.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from instep import __version__
from instep.cli import (
    adopt,
    buckets,
    checkpoints,
    diff,
    evaluate,
    failures,
    instances,
    jobs,
    ledger,
    letters,
    mcp,
    namespace,
    pack,
    plan,
    project,
    queue,
    reconcile,
    run,
    search,
    serve,
    status,
    top,
    wants,
    why,
    workers,
)
from instep.cli.exit_codes import ExitCode, report, report_usage
from instep.system import collect_garbage_seldom

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

_PANELS = _EVERY_DAY, _LOOKING_DEEPER, _SERVERS, _QUEUES, _UPKEEP = (
    "Every day",
    "Looking deeper",
    "Servers",
    "Queues",
    "Upkeep",
)


class _PanelGroup(TyperGroup):
    """Lists commands by panel, as plain text: rich's own help takes twice as long."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in _PANELS}
        width = formatter.width - 6 - max(map(len, self.commands), default=0)
        for name, command in self.commands.items():
            panels[getattr(command, "rich_help_panel", _UPKEEP)].append((name, command.get_short_help_str(width)))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


app = typer.Typer(
    name="instep",
    cls=_PanelGroup,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's help takes twice the time
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"instep {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def instep(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True, show_default=False)
    ] = False,
) -> None:
    """Keep search indexes in step with their sources, on Spark.

    \b
    Examples:
      instep init docs          write docs/instep.yaml
      instep plan               show what a run would do, and why
      instep run                do it
      instep search "words"     search the index
      instep COMMAND --help     options and examples of a command

    \b
    Exit codes:
      0    it worked
      1    an error; the message says what to do
      2    `instep plan`: changes are pending; `instep diff`, `reconcile --dry-run`: a target differs;
           `instep queue verify`: a queue differs
      3    `instep run`: finished, but some documents failed, a build is held
           back, or a target does not hold what is recorded;
           `instep queue ack`, `fail`: some lines were refused
      64   wrong use of the command line
      75   another run holds the entity, or ledger, target or Spark are away: try later
      130  interrupted; run again to resume
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("init", rich_help_panel=_EVERY_DAY)(project.init)
app.command("check", rich_help_panel=_EVERY_DAY)(project.check)
app.command("plan", rich_help_panel=_EVERY_DAY)(plan.plan)
app.command("run", rich_help_panel=_EVERY_DAY)(run.run)
app.command("status", rich_help_panel=_EVERY_DAY)(status.status)
app.command("search", rich_help_panel=_EVERY_DAY)(search.search)
app.command("diff", rich_help_panel=_EVERY_DAY)(diff.diff)
app.command("failures", rich_help_panel=_EVERY_DAY)(failures.failures)

app.command("jobs", rich_help_panel=_LOOKING_DEEPER)(jobs.jobs)
app.add_typer(jobs.app, rich_help_panel=_LOOKING_DEEPER)
app.command("top", rich_help_panel=_LOOKING_DEEPER)(top.top)
app.command("why", rich_help_panel=_LOOKING_DEEPER)(why.why)
app.command("evaluate", rich_help_panel=_LOOKING_DEEPER)(evaluate.evaluate)
app.command("history", rich_help_panel=_LOOKING_DEEPER)(instances.history)
app.command("lineage", rich_help_panel=_LOOKING_DEEPER)(instances.lineage)
app.command("checkpoints", rich_help_panel=_LOOKING_DEEPER)(checkpoints.checkpoints)
app.command("buckets", rich_help_panel=_LOOKING_DEEPER)(buckets.buckets)

app.command("worker", rich_help_panel=_SERVERS)(workers.worker)
app.command("workers", rich_help_panel=_SERVERS)(workers.workers)
app.command("serve", rich_help_panel=_SERVERS)(serve.serve)
app.command("mcp", rich_help_panel=_SERVERS)(mcp.mcp)
app.command("pack", rich_help_panel=_SERVERS)(pack.pack)
app.command("want", rich_help_panel=_SERVERS)(wants.want)
app.command("wants", rich_help_panel=_SERVERS)(wants.wants)
app.command("cancel", rich_help_panel=_SERVERS)(wants.cancel)
app.add_typer(letters.app, rich_help_panel=_SERVERS)

app.add_typer(queue.app, rich_help_panel=_QUEUES)

app.command("reconcile", rich_help_panel=_UPKEEP)(reconcile.reconcile)
app.command("taint", rich_help_panel=_UPKEEP)(instances.taint)
app.command("rebuild", rich_help_panel=_UPKEEP)(instances.rebuild)
app.command("expire", rich_help_panel=_UPKEEP)(instances.expire)
app.command("promote", rich_help_panel=_UPKEEP)(instances.promote)
app.command("adopt", rich_help_panel=_UPKEEP)(adopt.adopt)
app.command("rebalance", rich_help_panel=_UPKEEP)(buckets.rebalance)
app.add_typer(namespace.app, rich_help_panel=_UPKEEP)
app.command("gc", rich_help_panel=_UPKEEP)(ledger.gc)
app.add_typer(ledger.app, rich_help_panel=_UPKEEP)
app.command("schema", rich_help_panel=_UPKEEP)(project.schema)


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    collect_garbage_seldom()
    _open_standard_streams()
    given = list(sys.argv[1:] if args is None else args)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of files may hold what the terminal's encoding cannot.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(given)
        sys.stdout.flush()
    except OSError:
        # Its reader has closed the output, or the disk is full. Python flushes once more at its end: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.ERROR
    return code


def _open_standard_streams() -> None:
    """Open the null device in place of those that a daemon has closed, so that no file takes their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115 -- open as long as the process
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115


def _app_of(given: Sequence[str]) -> typer.Typer:
    """The application with the first named command alone, if there is one: Typer looks at all there are before it runs
    any, which takes a twentieth of a run that finds nothing to do.
    """
    named = [each for each in app.registered_commands if given and each.name == given[0]]
    if not named:
        return app
    alone = copy.copy(app)
    alone.registered_commands, alone.registered_groups = named, []
    return alone


def _run(given: list[str]) -> int:
    options = given[: given.index("--")] if "--" in given else given
    as_json = "--json" in options
    try:
        code = _app_of(given)(args=given, prog_name="instep", standalone_mode=False)
    except typer.Abort:
        return report(KeyboardInterrupt(), as_json=as_json)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f"See `{context.command_path} --help`." if context else None
        # Of a choice that there is not, Typer hands on whose error it was.
        return report_usage(error.format_message().replace(": Value error, ", ": "), hint, as_json=as_json)
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        return report(error, as_json=as_json)
    if code == ExitCode.INTERRUPTED:
        # How Typer hands on Ctrl-C.
        return report(KeyboardInterrupt(), as_json=as_json)
    return code if isinstance(code, int) else ExitCode.OK
