"""`instep lineage`."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output
from instep.cli.times import time_value


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    HTML = "html"


def lineage(
    ref: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            help="A partition (Document, which is Document@global), or the UUID of an instance or its beginning.",
            show_default=False,
        ),
    ],
    at: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            parser=time_value,
            help="As it was known then (ISO 8601; in the local zone if it names none).",
            show_default=False,
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to show it; html is one page.")] = Format.TEXT,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """What an instance was made from, and from what that was, to the end; and what was made from it.

    \b
    Examples:
      instep lineage Document
      instep lineage Document --at 2026-01-31T12:00 --json
      instep lineage Document --format html > lineage.html
    """
    from instep.app import load
    from instep.cli import graphs

    found = load(project).lineage(ref, at=None if at is None else datetime.fromtimestamp(at / 1000, UTC))
    out = Output(as_json=as_json or form is Format.JSON)

    def show() -> None:
        shown = {Format.TEXT: graphs.as_text, Format.HTML: graphs.as_html}.get(form)
        for line in shown(found) if shown else graphs.as_dot(found.graph):
            out.line(line)

    out.result(found.as_dict(), show)
