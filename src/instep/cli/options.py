"""Options that several commands share. Use them as the type of a parameter."""

from __future__ import annotations

import getpass
import socket
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from instep.cli.completion import entity_names
from instep.domain.texts import parse_duration

ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        "-p",
        metavar="PATH",
        help="instep.yaml or its folder; by default searched here and in the folders above.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.", show_default=False)]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.", show_default=False)]
EntitiesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ENTITY]...",
        help="Entities by name; all of them by default.",
        show_default=False,
        autocompletion=entity_names,
    ),
]
EntityOption = Annotated[
    list[str] | None,
    typer.Option(
        "--entity",
        metavar="NAME",
        help="Only this entity; may be repeated.",
        show_default=False,
        autocompletion=entity_names,
    ),
]
NamespaceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace", metavar="PATH", help="A namespace, such as 42/9970; may be repeated.", show_default=False
    ),
]
RefArgument = Annotated[
    str,
    typer.Argument(
        metavar="REF",
        help="A partition: Document, which is Document@global.",
        show_default=False,
        autocompletion=entity_names,
    ),
]
GenerationOption = Annotated[
    str | None,
    typer.Option(
        "--generation",
        metavar="NAME",
        help="Use this generation ('' is the one without a name); by default the promoted one.",
        show_default=False,
    ),
]
AsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        metavar="PRINCIPAL",
        help="Search as this person or group, who find their documents and public ones; may be repeated.",
        show_default=False,
    ),
]
FullRefreshOption = Annotated[
    bool, typer.Option("--full-refresh", help="Rebuild everything, beside the served index.", show_default=False)
]
RetryFailuresOption = Annotated[
    bool,
    typer.Option("--retry-failures", help="Try documents that failed again, changed or not.", show_default=False),
]
AllowDeletesOption = Annotated[
    bool,
    typer.Option(
        "--allow-deletes", help="Delete everything that is gone from the source, however much.", show_default=False
    ),
]
AllowEmptyOption = Annotated[
    bool,
    typer.Option("--allow-empty", help="Let an index become empty if its source is empty.", show_default=False),
]
FullListingOption = Annotated[
    bool,
    typer.Option(
        "--full-listing",
        help="List the source itself as it is now, instead of reading its inventory.",
        show_default=False,
    ),
]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="HOST:PORT", help="Serve the metrics of this process, for Prometheus.", show_default=False
    ),
]
EngineOption = Annotated[
    str | None, typer.Option("--engine", metavar="NAME", help="auto, inline or spark; default: the project's.")
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Keep running, and index every change.", show_default=False)]
EveryOption = Annotated[
    float,
    typer.Option("--every", metavar="SECONDS", min=0.1, help="With --watch: time between two checks of a source."),
]


def user_text() -> str:
    """`ann on server-1`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a user without a name
        user = "unknown"
    return f"{user} on {socket.gethostname()}"


def duration_value(text: str) -> int:
    """`1h`, `30d`, `1h30m`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from error


def time_value(text: str) -> int:
    """ISO 8601: `2026-01-31`, `2026-01-31T12:00`, `2026-01-31T12:00:00Z`; in the local zone when it names none."""
    try:
        milliseconds = round(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        what = "is not a time such as 2026-01-31, 2026-01-31T12:00 or 2026-01-31T12:00:00Z"
        raise typer.BadParameter(f"{text!r} {what}") from error
    if milliseconds < 0:
        raise typer.BadParameter(f"{text!r} is before 1970")
    return milliseconds
