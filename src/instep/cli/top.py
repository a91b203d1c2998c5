"""`instep top`: jobs, workers and failures in the terminal, live."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output
from instep.cli.signals import terminate_like_ctrl_c
from instep.errors import InstepError

if TYPE_CHECKING:
    from rich.console import Console

    from instep.answers.overview import Overview
    from instep.app import Instep

#: From one look to the next.
_SECONDS = 2.0


def top(
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.", show_default=False)] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show jobs, their progress, workers and failures, live.

    It is updated every two seconds until Ctrl-C. With --once, with --json, or where standard output is no
    terminal, it is printed once.

    \b
    Examples:
      instep top
      instep top --once
      instep top --json
    """
    from instep.app import load

    opened = load(project)
    out = Output(as_json=as_json)
    first = opened.overview()
    if once or as_json or not sys.stdout.isatty():
        out.result(first, lambda: _print(out.console(), opened, first))
    else:
        with terminate_like_ctrl_c(), suppress(KeyboardInterrupt):
            _watch(out.console(), opened, first)


def _print(console: Console, opened: Instep, seen: Overview) -> None:
    from instep.cli.top_view import screen

    console.print(screen(opened.project.name, seen))


def _watch(console: Console, opened: Instep, seen: Overview) -> None:
    from rich.live import Live

    from instep.cli.top_view import screen

    name = opened.project.name
    with Live(screen(name, seen), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(_SECONDS)
            trouble = None
            try:
                seen = opened.overview(seen)
            except InstepError as error:
                # It may pass, and until then it is seen how things stood.
                trouble = f"The ledger cannot be read: {error}"
            live.update(screen(name, seen, trouble=trouble), refresh=True)
