"""Times and durations on the command line. Use the options as types of parameters; values are milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from instep.domain.durations import parse_duration


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
        what = "is no time such as 2026-01-31, 2026-01-31T12:00 or 2026-01-31T12:00:00Z"
        raise typer.BadParameter(f"{text!r} {what}") from error
    if milliseconds < 0:
        raise typer.BadParameter(f"{text!r} is before 1970")
    return milliseconds


def when_text(milliseconds: int, now: int) -> str:
    """Local time as it stands in a table: to the minute in the year of `now`, else the day."""
    when, today = (datetime.fromtimestamp(each / 1000, UTC).astimezone() for each in (milliseconds, now))
    return when.strftime("%m-%d %H:%M" if when.year == today.year else "%Y-%m-%d")


def moment_text(milliseconds: int) -> str:
    """Local time to the second, with the year: for what may be long ago. `time_value` reads it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
