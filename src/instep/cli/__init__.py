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
from typing import Annotated

import typer
from typer.exceptions import TyperException

from instep import __version__
from instep.cli import (
    adopt,
    buckets,
    cancel,
    check,
    checkpoints,
    dead_letters,
    diff,
    dispatch,
    expire,
    failures,
    garbage,
    handlers,
    history,
    init,
    job,
    jobs,
    ledger,
    lineage,
    namespace,
    plan,
    promote,
    queue,
    rebalance,
    rebuild,
    run,
    schema,
    search,
    serve,
    status,
    taint,
    top,
    want,
    wants,
    why,
    worker,
    workers,
)
from instep.cli.exit_codes import ExitCode, report, report_usage
from instep.system import collect_garbage_seldom

app = typer.Typer(
    name="instep",
    add_completion=False,
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
      instep plan               what would a run do, and why?
      instep run                do it
      instep search "words"     ask the index
      instep diff               is it all there?
      instep worker             help with the work, on as many servers as wanted
      instep jobs               what runs, and what ran
      instep top                watch it run
      instep serve              watch all that in a browser, or by its HTTP API
      instep dispatch           ask for everything to be brought up to date, over the bus
      instep serve-handlers     do what is asked
      instep want Document      have it built by whatever worker is free
      instep history Document   every build of it, and how it ended
      instep why Document URI   where a row comes from
      instep queue next salts   keys that a pending queue has, to be worked on

    \b
    Exit codes:
      0    it worked
      1    an error; the message says what to do
      2    `instep plan`: changes are pending; `instep diff`: a target differs;
           `instep queue verify`: a queue differs
      3    `instep run`: finished, but some documents failed, a build is held
           back, or a target does not hold what is recorded;
           `instep queue ack`: some lines were refused
      64   wrong use of the command line
      75   another run holds the entity, or ledger, target or Spark are away: try later
      130  interrupted; run again to resume
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("init")(init.init)
app.command("check")(check.check)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("search")(search.search)
app.command("diff")(diff.diff)
app.command("adopt")(adopt.adopt)
app.command("buckets")(buckets.buckets)
app.command("rebalance")(rebalance.rebalance)
app.command("failures")(failures.failures)
app.command("worker")(worker.worker)
app.command("workers")(workers.workers)
app.command("jobs")(jobs.jobs)
app.command("top")(top.top)
app.add_typer(job.app)
app.command("serve")(serve.serve)
app.command("want")(want.want)
app.command("wants")(wants.wants)
app.command("cancel")(cancel.cancel)
app.command("dispatch")(dispatch.dispatch)
app.command("serve-handlers")(handlers.serve_handlers)
app.add_typer(dead_letters.app)
app.command("checkpoints")(checkpoints.checkpoints)
app.add_typer(namespace.app)
app.add_typer(queue.app)
app.command("history")(history.history)
app.command("taint")(taint.taint)
app.command("rebuild")(rebuild.rebuild)
app.command("expire")(expire.expire)
app.command("promote")(promote.promote)
app.command("why")(why.why)
app.command("lineage")(lineage.lineage)
app.command("gc")(garbage.gc)
app.add_typer(ledger.app)
app.command("schema")(schema.schema)


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    collect_garbage_seldom()
    given = list(sys.argv[1:] if args is None else args)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of files may hold what the terminal's encoding cannot.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has enough. Python flushes once more at its end: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.ERROR
    return code


def _app_of(given: Sequence[str]) -> typer.Typer:
    """With the command that is named first alone, if there is one: Typer looks at all there are before it runs any,
    which takes a twentieth of a run that finds nothing to do.
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
