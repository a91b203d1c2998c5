"""Goals, and how results are shown: a table in a terminal, Markdown elsewhere."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

BARE, INLINE, SPARK, WARM = "bare", "instep inline", "instep spark cold", "instep spark warm"
GIB = 2**30

#: Seconds at most: (documents, case, side) → goal.
SECONDS = {
    (2_000, "initial", INLINE): 4.0,
    (2_000, "nothing", INLINE): 0.8,
    (2_000, "change", INLINE): 1.3,
    (20_000, "initial", INLINE): 20.0,
    (20_000, "nothing", INLINE): 1.0,
    (20_000, "change", INLINE): 2.5,
    (20_000, "initial", SPARK): 20.0,
}
WARM_RATIO = 1.5
COST_RATIO = 2.0
HELP_SECONDS = 0.3
PEAK_GIB = 3.0


@dataclass
class Cell:
    """All runs of one side in one case: wall and CPU seconds, peaks in bytes, and what the truth check said."""

    documents: int
    case: str
    side: str
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    truth: str = "not checked"
    error: str = ""

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and what was reached; `reached` is None when it was not measured."""

    what: str
    at_most: float
    unit: Literal["s", "x", "GiB"]
    reached: float | None

    @property
    def verdict(self) -> str:
        if self.reached is None:
            return "not measured"
        return "met" if self.reached <= self.at_most else "MISSED"


def goals(cells: Sequence[Cell], help_seconds: float | None) -> list[Goal]:
    medians = {(cell.documents, cell.case, cell.side): cell.median for cell in cells}
    found = [
        Goal(f"{documents:,} documents, {case}, {side}", limit, "s", medians.get((documents, case, side)))
        for (documents, case, side), limit in SECONDS.items()
    ]
    warm = _ratio(medians.get((20_000, "initial", WARM)), medians.get((20_000, "initial", BARE)))
    found.append(Goal("20,000 documents, initial, warm Spark session against the bare script", WARM_RATIO, "x", warm))
    cost = _ratio(medians.get((20_000, "change", INLINE)), medians.get((2_000, "same change", INLINE)))
    found.append(Goal("a change of 200 documents, of 20,000 against of 2,000", COST_RATIO, "x", cost))
    found.append(Goal("instep --help", HELP_SECONDS, "s", help_seconds))
    large = [cell for cell in cells if cell.documents == 100_000 and cell.side in {INLINE, SPARK}]
    peak = max((peak for cell in large for peak in cell.peaks), default=None)
    found.append(Goal("100,000 documents, peak RSS of all processes", PEAK_GIB, "GiB", peak / GIB if peak else None))
    return found


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over and under else None


def result_rows(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    heads = ["documents", "case", "side", "seconds", "all runs", "CPU s", "x bare", "goal", "", "peak RSS", "truth"]
    bare = {(cell.documents, cell.case): cell.median for cell in cells if cell.side == BARE}
    rows = []
    for cell in cells:
        goal = SECONDS.get((cell.documents, cell.case, cell.side))
        ratio = _ratio(cell.median, bare.get((cell.documents, cell.case)))
        rows.append(
            [
                f"{cell.documents:,}",
                cell.case,
                cell.side,
                f"{cell.median:.2f}" if cell.median is not None else "-",
                " ".join(f"{each:.2f}" for each in cell.seconds),
                f"{statistics.median(cell.cpu):.1f}" if cell.cpu else "",
                f"{ratio:.1f}" if ratio else "",
                f"{goal:.1f}" if goal else "",
                ("met" if cell.median <= goal else "MISSED") if goal and cell.median is not None else "",
                f"{max(cell.peaks) / GIB:.2f} GiB" if cell.peaks else "",
                cell.error or cell.truth,
            ]
        )
    return heads, rows


def goal_rows(found: Sequence[Goal]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            goal.what,
            f"{goal.at_most:g} {goal.unit}",
            "-" if goal.reached is None else f"{goal.reached:.2f} {goal.unit}",
            goal.verdict,
        ]
        for goal in found
    ]
    return ["goal", "at most", "reached", ""], rows


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not sys.stdout.isatty():
        print(f"### {title}\n\n{markdown(heads, rows)}\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads, title=title, title_justify="left")
    for row in rows:
        style = "red" if "MISSED" in row else "green" if "met" in row else None
        table.add_row(*row, style=style)
    Console().print(table)
