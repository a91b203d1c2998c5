"""Output of commands: results on standard output (a table, lines or JSON), progress on standard error; values as text.

out = Output(as_json=as_json, quiet=quiet)
with out.progress() as progress:
    results = load(project).run(progress=progress)
out.result(results, lambda: out.table("Run", ["entity", "documents"], rows))
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from instep.domain.refs import PartitionRef
    from instep.telemetry.progress import Progress


def visible(text: str) -> str:
    """Text without what could steer a terminal: file names may hold anything."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)


def cell_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return visible(str(value))


def ref_text(ref: PartitionRef, generation: str = "") -> str:
    """`Document` for `Document@global`: projects without namespaces need no scope. `Document (v2)`."""
    from instep.domain.refs import generation_text

    return generation_text(ref.entity if ref.scope.is_global else ref, generation)


def refs_text(refs: Sequence[PartitionRef], generation: str = "") -> str:
    """`Document`, `Document +2`, `Document (v2)`; empty for none."""
    if not refs:
        return ""
    first = ref_text(refs[0], generation)
    return f"{first} +{len(refs) - 1}" if len(refs) > 1 else first


def id_text(identity: str) -> str:
    """The beginning of an id: enough to name it again."""
    return identity[:8]


def seconds_text(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def bytes_text(number: int) -> str:
    """`512 B`, `1.5 MB`: powers of 1,000."""
    amount, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 999.5:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"


def span_text(milliseconds: int) -> str:
    """`12 s`, `3 min`, `5 h`, `4 d`: whole, in the largest unit that it fills (days after two)."""
    seconds = max(0, milliseconds) // 1000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    hours = seconds // 3600
    return f"{hours} h" if hours < 48 else f"{hours // 24} d"


def ago_text(then: int | None, now: int) -> str | None:
    """`3 min ago`."""
    if then is None:
        return None
    return "now" if now - then < 1000 else f"{span_text(now - then)} ago"


def state_text(state: str) -> str:
    """A job's state as it stands in a table."""
    return "with errors" if state == "COMPLETED_WITH_ERRORS" else state.lower()


def rate_text(rate: float) -> str:
    """Units per second: `12,345`, `0.25`."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def pace_text(rate: float | None, left: float | None) -> str:
    """`1,234/s, 3 min 20 s left`; nothing while the rate is not known."""
    if rate is None:
        return ""
    return f"{rate_text(rate)}/s" if left is None else f"{rate_text(rate)}/s, {seconds_text(left)} left"


def when_text(milliseconds: int, now: int) -> str:
    """Local time as it stands in a table: to the minute in the year of `now`, else the day."""
    when, today = (datetime.fromtimestamp(each / 1000, UTC).astimezone() for each in (milliseconds, now))
    return when.strftime("%m-%d %H:%M" if when.year == today.year else "%Y-%m-%d")


def moment_text(milliseconds: int) -> str:
    """Local time to the second, with the year: for what may be long ago. `time_value` reads it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


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
        from rich.text import Text

        cells = [list(row) for row in rows]
        numeric = [any(_is_number(row[index]) for row in cells) for index in range(len(columns))]
        self.texts(columns, ([Text(cell_text(cell)) for cell in row] for row in cells), title=title, right=numeric)

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
    def progress(self) -> Iterator[Progress]:
        """Bars on a terminal, now and then a line elsewhere, nothing with --json or --quiet."""
        from instep.telemetry.progress import Silent

        if self.as_json or self.quiet:
            yield Silent()
        elif sys.stderr.isatty():
            from instep.cli.bar_progress import Bars

            with Bars() as bars:
                yield bars
        else:
            from instep.cli.log_progress import Lines

            yield Lines(sys.stderr)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
