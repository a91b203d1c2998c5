"""What the commands of `instep queue` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from instep.cli.output import Output

QueueArgument = Annotated[str, typer.Argument(metavar="NAME", help="A queue by its name.", show_default=False)]
SqlOption = Annotated[
    bool, typer.Option("--sql", help="Print the statements that would run, and run none.", show_default=False)
]


def show_statements(out: Output, statements: Sequence[str]) -> None:
    """As a script."""

    def show() -> None:
        for each in statements:
            out.line(f"{each.rstrip().rstrip(';')};\n")

    out.result(list(statements), show)
