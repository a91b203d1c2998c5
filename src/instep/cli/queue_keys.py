"""`instep queue next|ack|fail|unpark`: commands of consumers, which exchange keys as JSON lines."""

from __future__ import annotations

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeGuard, cast

import typer

from instep.cli.exit_codes import ExitCode
from instep.cli.options import JsonOption, ProjectOption, duration_value, user_text
from instep.cli.output import Output
from instep.cli.queue_views import QueueArgument, SqlOption, key_text, show_statements
from instep.domain.pending_queue import KeyKind, QueueKey
from instep.domain.storable import is_storable
from instep.domain.texts import amount
from instep.errors import UserError

if TYPE_CHECKING:
    from instep.queues.consumers import Answer

#: Lines that are dealt with at once.
BATCH: Final = 5_000

_PIECE: Final = 1 << 16
_LONGEST: Final = 1 << 20
_LARGEST: Final = 2**63
#: So many of the lines that are refused are named.
_MOST_NAMED = 1_000


def _participants(text: str | None) -> tuple[int, ...]:
    try:
        return () if text is None else tuple(map(int, text.split(",")))
    except ValueError:
        raise typer.BadParameter(f"{text!r} must be whole numbers such as 1,2") from None


def next_keys(
    name: QueueArgument,
    number: Annotated[int, typer.Option("--number", "-n", metavar="N", min=1, help="Maximum number of keys.")] = 100,
    lease: Annotated[
        int | None,
        typer.Option(
            metavar="DURATION",
            parser=duration_value,
            help="Lease the keys for this time, such as 5m.",
            show_default=False,
        ),
    ] = None,
    legacy: Annotated[
        bool, typer.Option("--legacy", help="Read the anti-join, whatever the phase.", show_default=False)
    ] = False,
    participants: Annotated[
        str | None,
        typer.Option(
            metavar="ID,…", help="Only keys that concern one of these participants, such as 1,2.", show_default=False
        ),
    ] = None,
    sql: SqlOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take pending keys to work on.

    Each is a JSON line, which `ack` or `fail` takes back.

    Fresh keys come first; at most a tenth are keys that failed before and are due. Without --lease keys are only read:
    for one consumer. Until `instep queue switch` they come from the anti-join.

    \b
    Examples:
      instep queue next salts
      instep queue next salts -n 1000 --lease 5m > work.jsonl
      instep queue next salts --participants 1,2 --legacy
    """
    from instep.answers.answer import as_json as dumped
    from instep.answers.queues import GivenKey
    from instep.app import load

    out = Output(as_json=as_json)
    whom = _participants(participants)
    with load(project).queue(name) as found:
        if sql:
            show_statements(out, [found.next_statement(number, participants=whom, legacy=legacy)])
            return
        given = found.next(
            number,
            lease=None if lease is None else timedelta(milliseconds=lease),
            by=user_text(),
            participants=whom,
            legacy=legacy,
        )
        if not legacy and not found.switched:
            out.note(f"{name} is not switched: these keys are from the anti-join. See: instep queue status {name}")
    keys = [dumped(GivenKey.of(each)) for each in given]
    out.result(keys, lambda: _write_lines(keys))


def ack(name: QueueArgument, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Acknowledge keys that are done.

    They are JSON lines on standard input, as `next` wrote them.

    They are covered from then on, as if one more table covered them. A line that is refused is named with its number,
    all others are done, and the command exits with 3.

    \b
    Examples:
      instep queue ack salts < done.jsonl
      echo '{"key": 88123456, "fence": 17}' | instep queue ack salts
    """
    from instep.app import load
    from instep.queues.consumers import Ack

    with load(project).queue(name) as found:
        _tell(name, lambda lines: found.ack(Ack(each.key, each.fence) for each in lines), as_json=as_json)


def fail(
    name: QueueArgument,
    error: Annotated[
        str, typer.Option(metavar="TEXT", help="Reason of the failure, for lines that have none.", show_default=False)
    ] = "",
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report keys that failed.

    They are JSON lines on standard input, as `next` wrote them, with an "error".

    Each is tried again after 5 minutes, then 10, 20, … up to 24 hours, and parked after 12 attempts. A line that is
    refused is named with its number, all others are done, and the command exits with 3.

    \b
    Examples:
      instep queue fail salts < failed.jsonl
      echo '{"key": 88123456, "fence": 17, "error": "HTTP 500"}' | instep queue fail salts
    """
    from instep.app import load
    from instep.ledger.key_leases import KeyFailure

    def told(lines: Iterable[KeyLine]) -> Sequence[Answer]:
        return found.fail(KeyFailure(each.key, each.fence, each.error or error) for each in lines)

    with load(project).queue(name) as found:
        _tell(name, told, as_json=as_json)


def unpark(
    name: QueueArgument,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="Parked keys.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.", show_default=False)] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try parked keys again, with as many attempts as before.

    `instep queue status --parked` shows which there are, and why.

    \b
    Examples:
      instep queue unpark salts 88123456 88123455
      instep queue unpark salts --all --json
    """
    from instep.app import load

    if bool(keys) == everything:
        raise UserError(
            "no key is named", hint=f"Name them as `instep queue status {name} --parked` lists them, or use --all."
        )
    out = Output(as_json=as_json)
    with load(project).queue(name) as found:
        named = {each: key_named(each, found.kind) for each in keys or ()}
        done = found.unpark(named.values() if named else None)
    others = [each for each in named.values() if each not in done]

    def show() -> None:
        out.line(f"{name}: {amount(len(done), 'key')} to be tried again.")
        if others:
            out.line(f"Not parked: {', '.join(map(key_text, others))}")

    out.result({"name": name, "unparked": sorted(done), "not_parked": others}, show)


def _tell(name: str, told: Callable[[Iterable[KeyLine]], Sequence[Answer]], *, as_json: bool) -> None:
    """Read lines, hand on those that can be read, and say what became of all."""
    out = Output(as_json=as_json)
    counts, named, refused = Counter[str](), list[dict[str, Any]](), 0
    for batch in line_batches(standard_input()):
        good = [each for each in batch if isinstance(each, KeyLine)]
        where = {each.key: each.number for each in good}
        bad = [each for each in batch if isinstance(each, BadLine)]
        for answer in told(good) if good else ():
            if answer.why is None:
                counts[str(answer.effect)] += 1
            else:
                bad.append(BadLine(where[answer.key], answer.why, answer.key))
        refused += len(bad)
        for each in sorted(bad, key=lambda each: each.number)[: _MOST_NAMED - len(named)]:
            key = "" if each.key is None else f"key {key_text(each.key)}: "
            out.note(f"line {each.number}: {key}{each.why}")
            named.append({"line": each.number, "key": each.key, "why": each.why})
    if refused > len(named):
        out.note(f"and {refused - len(named):,} more")
    done = ", ".join(f"{number:,} {effect}" for effect, number in counts.items()) or "nothing was done"
    summary = f"{name}: {done}{f', {refused:,} refused' if refused else ''}."
    out.result({"name": name, **counts, "refused": refused, "lines": named}, lambda: out.line(summary))
    if refused:
        raise typer.Exit(ExitCode.FAILURES)


def _write_lines(keys: Iterable[dict[str, Any]]) -> None:
    sys.stdout.writelines(json.dumps(each) + "\n" for each in keys)


@dataclass(frozen=True, slots=True)
class KeyLine:
    """`error` is what a consumer says that went wrong with the key."""

    number: int
    key: QueueKey
    fence: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that nothing was done about, and why."""

    number: int
    why: str
    key: QueueKey | None = None


def line_batches(stream: io.BufferedIOBase) -> Iterator[list[KeyLine | BadLine]]:
    """Batches of lines as they come: lines that are there do not wait for later ones."""
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
    """Standard input; on a terminal a note says that lines are read from the keyboard."""
    if sys.stdin.isatty():
        print("Reading JSON lines from the keyboard: end with Ctrl-D.", file=sys.stderr)
    return cast("io.BufferedReader", sys.stdin.buffer)


def parsed(number: int, line: bytes) -> KeyLine | BadLine:
    """Parse one line, or say what is wrong with it; the line itself is not repeated."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return BadLine(number, "is not JSON")
    if not isinstance(found, dict):
        return BadLine(number, 'must be an object such as {"key": 7, "fence": 3}')
    key, fence, error = found.get("key"), found.get("fence"), found.get("error")
    if not _is_whole(key) and not (isinstance(key, str) and is_storable(key)):
        why = '"key" is missing' if key is None else '"key" must be a whole number of 64 bits, or a text without NUL'
        return BadLine(number, why)
    if fence is not None and not _is_whole(fence):
        return BadLine(number, '"fence" must be a whole number, as `instep queue next` gave it', key)
    if error is not None and not isinstance(error, str):
        return BadLine(number, '"error" must be text', key)
    return KeyLine(number, key, fence, error)


def key_named(text: str, kind: KeyKind) -> QueueKey:
    """The key that is named on the command line."""
    said: QueueKey = int(text) if kind is KeyKind.INTEGER and re.fullmatch(r"-?[0-9]{1,19}", text) else text
    if (key := kind.key(said)) is None:
        raise UserError(f"{key_text(text)} is not a key of this queue", hint=f"Its keys are of the type {kind}.")
    return key


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value < _LARGEST
