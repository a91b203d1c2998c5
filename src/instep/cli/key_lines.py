"""Keys as JSON lines on standard input: what `instep queue next` wrote, with whatever a consumer put beside it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, cast

from instep.errors import UserError

#: Lines that are dealt with at once.
BATCH: Final = 5_000

_PIECE: Final = 1 << 16
_LONGEST: Final = 1 << 20
_LARGEST: Final = 2**63


@dataclass(frozen=True, slots=True)
class KeyLine:
    """`error` is what a consumer says that went wrong with the key."""

    number: int
    key: int
    fence: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that nothing was done about, and why."""

    number: int
    why: str
    key: int | None = None


def line_batches(stream: io.BufferedIOBase) -> Iterator[list[KeyLine | BadLine]]:
    """As lines come: who writes them may take its time, and what is there should not wait for what is not."""
    number, rest = 0, b""
    while piece := stream.read1(_PIECE):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _LONGEST:
            raise UserError(f"line {number + len(lines) + 1} has more than a megabyte", where="standard input")
        found = [parsed(number + index, line) for index, line in enumerate(lines, 1) if line.strip()]
        number += len(lines)
        yield from (found[start : start + BATCH] for start in range(0, len(found), BATCH))
    if rest.strip():
        yield [parsed(number + 1, rest)]


def standard_input() -> io.BufferedIOBase:
    """Says so to a person who has to type."""
    if sys.stdin.isatty():
        print("Reading JSON lines from the keyboard: end with Ctrl-D.", file=sys.stderr)
    return cast("io.BufferedReader", sys.stdin.buffer)


def parsed(number: int, line: bytes) -> KeyLine | BadLine:
    """One line, or what is wrong with it; the line itself is not repeated."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return BadLine(number, "is not JSON")
    if not isinstance(found, dict):
        return BadLine(number, 'must be an object such as {"key": 7, "fence": 3}')
    key, fence, error = found.get("key"), found.get("fence"), found.get("error")
    if not _is_whole(key):
        return BadLine(number, '"key" is missing' if key is None else '"key" must be a whole number of 64 bits')
    if fence is not None and not _is_whole(fence):
        return BadLine(number, '"fence" must be a whole number, as `instep queue next` gave it', key)
    if error is not None and not isinstance(error, str):
        return BadLine(number, '"error" must be text', key)
    return KeyLine(number, key, fence, error)


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value < _LARGEST
