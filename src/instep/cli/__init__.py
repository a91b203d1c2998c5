"""The command line. Commands import what they need when they run: `instep --help` stays quick.

A command is a function in a module that is imported when it is asked for; `_COMMANDS` has them all. It prints through
`output.Output`, raises `UserError`, and leaves by `typer.Exit(ExitCode.…)` when it has more to say
than yes; `main` does the rest.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from instep import __version__
from instep.cli.exit_codes import ExitCode, report, report_usage
from instep.system import collect_garbage_seldom

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

#: Commands by panel: each with its function, and those that have commands of their own with their application.
_COMMANDS: Final = {
    "Every day": {
        "init": "project:init",
        "check": "project:check",
        "plan": "plan:plan",
        "run": "run:run",
        "status": "status:status",
        "search": "search:search",
        "diff": "diff:diff",
        "failures": "failures:failures",
    },
    "Looking deeper": {
        "jobs": "jobs:jobs",
        "job": "jobs:app",
        "top": "top:top",
        "why": "why:why",
        "evaluate": "evaluate:evaluate",
        "history": "instances:history",
        "lineage": "instances:lineage",
        "checkpoints": "checkpoints:checkpoints",
        "buckets": "buckets:buckets",
    },
    "Servers": {
        "worker": "workers:worker",
        "workers": "workers:workers",
        "serve": "serve:serve",
        "mcp": "mcp:mcp",
        "pack": "pack:pack",
        "want": "wants:want",
        "wants": "wants:wants",
        "cancel": "wants:cancel",
        "letters": "letters:app",
    },
    "Queues": {"queue": "queue:app"},
    "Upkeep": {
        "reconcile": "reconcile:reconcile",
        "taint": "instances:taint",
        "rebuild": "instances:rebuild",
        "expire": "instances:expire",
        "promote": "instances:promote",
        "adopt": "adopt:adopt",
        "rebalance": "buckets:rebalance",
        "namespace": "namespace:app",
        "gc": "ledger:gc",
        "ledger": "ledger:app",
        "schema": "project:schema",
    },
}


class _PanelGroup(TyperGroup):
    """Lists commands by panel, as plain text: rich's own help takes twice as long."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in _COMMANDS}
        width = formatter.width - 6 - max(map(len, self.commands), default=0)
        for name, command in self.commands.items():
            panels[getattr(command, "rich_help_panel", "Upkeep")].append((name, command.get_short_help_str(width)))
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


def application(*names: str) -> typer.Typer:
    """The command line with these of its commands; with all when none is named."""
    found = copy.copy(app)
    found.registered_commands, found.registered_groups = list(app.registered_commands), []
    for panel, commands in _COMMANDS.items():
        for name, place in commands.items():
            if names and name not in names:
                continue
            module, _, attribute = place.partition(":")
            command = getattr(import_module(f"instep.cli.{module}"), attribute)
            if isinstance(command, typer.Typer):
                found.add_typer(command, rich_help_panel=panel)
            else:
                found.command(name, rich_help_panel=panel)(command)
    return found


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
    """The application with the first named command alone, if there is one: importing all that there are, and having
    Typer look at them, takes a tenth of a run that finds nothing to do.
    """
    return application(*(name for commands in _COMMANDS.values() for name in commands if given[:1] == [name]))


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
