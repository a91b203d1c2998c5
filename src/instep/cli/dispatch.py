"""`instep dispatch`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import JsonOption, NamespaceOption, ProjectOption
from instep.cli.output import Output
from instep.cli.signals import terminate_like_ctrl_c
from instep.cli.times import duration_value, moment_text, time_value
from instep.errors import InstepError, UserError

if TYPE_CHECKING:
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
