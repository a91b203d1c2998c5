"""Values as texts of tables and lines: amounts, times, names; without what could steer a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from instep.domain.texts import amount

if TYPE_CHECKING:
    from instep.domain.refs import PartitionRef
    from instep.domain.waves import Stage


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
    return f"{rate_text(rate)}/s" if left is None else f"{rate_text(rate)}/s, {left_text(left)} left"


def left_text(seconds: float) -> str:
    """`3 min 20 s`, `under 1 s`: nothing is done before it is."""
    return seconds_text(seconds) if seconds >= 1 else "under 1 s"


def stage_text(stage: Stage) -> str:
    """`Spark stage 3: 5 of 8 tasks`."""
    return f"Spark stage {stage.number}: {stage.done:,} of {amount(stage.tasks, 'task')}"


def stages_text(stages: Collection[Stage]) -> str:
    """`Spark: 3 stages, 24 tasks`; nothing for none."""
    if not stages:
        return ""
    return f"Spark: {amount(len(stages), 'stage')}, {amount(sum(each.tasks for each in stages), 'task')}"


def when_text(milliseconds: int, now: int) -> str:
    """Local time as it stands in a table: to the minute in the year of `now`, else the day."""
    when, today = (datetime.fromtimestamp(each / 1000, UTC).astimezone() for each in (milliseconds, now))
    return when.strftime("%m-%d %H:%M" if when.year == today.year else "%Y-%m-%d")


def moment_text(milliseconds: int) -> str:
    """Local time to the second, with the year: for what may be long ago. `time_value` reads it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
