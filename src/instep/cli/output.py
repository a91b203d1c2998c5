"""Output of commands: results on standard output (a table, lines or JSON), progress on standard error.

out = Output(as_json=as_json, quiet=quiet)
with out.progress() as progress:
    results = load(project).run(progress=progress)
out.result(results, lambda: out.table("Run", ["entity", "documents"], rows))
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from instep.telemetry.texts import cell_text, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from instep.telemetry.progress import Progress


@dataclass(frozen=True, slots=True)
class Output:
    """Prints for people, or JSON. Nothing but the one JSON value goes to standard output with `as_json`."""

    as_json: bool = False
    quiet: bool = False

    def result(self, value: Any, show: Callable[[], None]) -> None:
        """The command's answer: `value` as JSON, or what `show` prints."""
        if self.as_json:
            from instep.answers.answer import as_json

            # In UTF-8 all but lone surrogates can be written, and their escape is JSON's own.
            plain = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            sys.stdout.write(json.dumps(as_json(value), indent=2, ensure_ascii=not plain) + "\n")
        else:
            show()

    def line(self, text: str = "") -> None:
        """Print one line for people; nothing with --json."""
        if not self.as_json:
            sys.stdout.write(visible(text) + "\n")

    def note(self, text: str) -> None:
        """A remark beside the result, on standard error."""
        if not self.quiet:
            sys.stderr.write(visible(text) + "\n")

    def table(self, title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Numbers are aligned right, with thousands separators. Cells are never read as markup."""
        if self.as_json:
            return
        values = [list(row) for row in rows]
        numeric = [any(_is_number(row[index]) for row in values) for index in range(len(columns))]
        cells = [[cell_text(cell) for cell in row] for row in values]
        if sys.stdout.isatty():
            from rich.text import Text

            self.texts(columns, ([Text(cell) for cell in row] for row in cells), title=title, right=numeric)
        else:
            sys.stdout.write(_unfolded(title, columns, cells, numeric))

    def texts(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Text]],
        *,
        title: str | None = None,
        right: Sequence[bool] | None = None,
    ) -> None:
        """A table of texts that have styles of their own."""
        if self.as_json:
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for index, name in enumerate(columns):
            table.add_column(Text(name), justify="right" if right and right[index] else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        self.console().print(table)

    def console(self) -> Console:
        """Rich console on standard output; wide when it is no terminal, so that nothing is folded."""
        from rich.console import Console

        return Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """With --json, send to standard error what functions of the project print meanwhile."""
        with redirect_stdout(sys.stderr) if self.as_json else nullcontext():
            yield

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Bars on a terminal, now and then a line elsewhere, nothing with --json or --quiet. See `answering`, too."""
        from instep.telemetry.progress import Silent

        if self.as_json or self.quiet:
            with self.answering():
                yield Silent()
        elif sys.stderr.isatty():
            from instep.telemetry.bar_progress import Bars

            with Bars() as bars:
                yield bars
        else:
            from instep.cli.log_progress import Lines

            yield Lines(sys.stderr)


def _unfolded(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """A table as wide as it has to be. Importing rich, which folds it for a terminal, takes as long as listing 5,000
    files.
    """
    lines = [
        line for row in rows for line in zip_longest(*(cell.expandtabs().split("\n") for cell in row), fillvalue="")
    ]
    widths = [max(map(_width, column)) for column in zip(columns, *lines, strict=True)]

    def aligned(line: Sequence[str]) -> str:
        spaces = [" " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)]
        cells = zip(line, spaces, right, strict=True)
        return " " + "   ".join(space + cell if at_right else cell + space for cell, space, at_right in cells)

    line = "─" if (sys.stdout.encoding or "").lower().startswith("utf") else "-"
    rule = " " + line * (sum(widths) + 3 * (len(widths) - 1))
    shown = [title or "", aligned(columns), rule, *map(aligned, lines), ""]
    return "".join(f"{each.rstrip()}\n" for each in shown)


def _width(text: str) -> int:
    """The columns of a terminal that a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
