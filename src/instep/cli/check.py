"""`instep check`."""

from __future__ import annotations

import typer

from instep.cli.exit_codes import ExitCode
from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output


def check(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Validate the project and what a run needs: Java, Spark, ledger, targets, sources, queues.

    Spark is really started, and runs a job (not for a project of queues alone). The first time it leaves an archive of
    its classes in the user's cache (150 MB), with which every later start takes half as long. Exits with 1 when
    something is missing, and with 75 when something is only out of reach now.

    \b
    Examples:
      instep check
      instep check --project docs --json
    """
    from instep.app import load

    out = Output(as_json=as_json, quiet=as_json)
    opened = load(project)
    if opened.project.entities:
        out.note("Starting Spark to see that it works (up to a minute the first time, seconds later) …")
    findings = opened.check()

    def show() -> None:
        marks = {"ok": "✓", "warning": "!", "problem": "✗"}
        for each in findings:
            out.line(f"{marks[each.health]} {each.subject}: {each.detail}")
            if each.hint:
                out.line(f"    {each.hint}")

    out.result(findings, show)
    problems = [each for each in findings if each.health == "problem"]
    if problems:
        raise typer.Exit(ExitCode.BUSY if all(each.away for each in problems) else ExitCode.ERROR)
