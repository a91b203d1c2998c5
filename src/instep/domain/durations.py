"""Durations as text: `30s`, `15min`, `1h`, `1h30m`, `30d`, `2w`."""

from __future__ import annotations

import re

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PART = r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(ms|min|s|m|h|d|w)"
_PARTS = re.compile(_PART)
_WHOLE = re.compile(rf"{_PART}(?: ?{_PART})*\Z")

#: For JSON Schema: what `parse_duration` takes.
DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)? ?(ms|min|s|m|h|d|w)( ?[0-9]+(\.[0-9]+)? ?(ms|min|s|m|h|d|w))*$"
#: A hundred years: for a longer time, leave the setting out.
LONGEST = 36_525 * _UNITS["d"]


def parse_duration(text: str) -> int:
    """Milliseconds. Raises `ValueError`, with what to write, for text that is no duration above 0."""
    if not _WHOLE.match(text.strip()):
        raise ValueError("must be a duration such as 30s, 15min, 1h, 1h30m, 30d or 2w")
    total = round(sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(text)))
    if not 0 < total <= LONGEST:
        raise ValueError("must be a duration above 0, of a hundred years at most")
    return total


def duration_text(milliseconds: int) -> str:
    """As `parse_duration` reads it: `1h 30m`."""
    parts = []
    for unit in ("w", "d", "h", "m", "s", "ms"):
        number, milliseconds = divmod(milliseconds, _UNITS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts) or "0s"
