"""Status of a queue as text for people, and options of the queue commands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from instep.cli.output import Output
from instep.domain.pending_queue import QueueKey
from instep.domain.texts import amount
from instep.telemetry.texts import ago_text, bytes_text, moment_text, seconds_text, span_text

if TYPE_CHECKING:
    from instep.answers.queues import Held, QueueStatus
    from instep.domain.key_leases import KeyLease
    from instep.queues.queue_state import Filling, Verdict


_NEXT = {
    "declared": "create",
    "created": "backfill",
    "backfilling": "backfill",
    "backfilled": "verify",
    "verified": "switch",
}


#: Letters of a key that are shown.
_SHOWN: Final = 80


def key_text(key: QueueKey) -> str:
    """A number as it is, and a text in quotes."""
    if not isinstance(key, str):
        return str(key)
    return json.dumps(key if len(key) <= _SHOWN else f"{key[:_SHOWN]}…", ensure_ascii=False)


def next_step(name: str, command: str, options: str = "") -> str:
    return f"Next: instep queue {command} {name} {options}".rstrip()


def verdict_lines(verdict: Verdict) -> list[str]:
    """The result of a comparison."""
    pending = f"{amount(verdict.pending, 'key')} pending, compared in {seconds_text(verdict.took / 1000)}"
    lines = [f"equal to its anti-join: {pending}"]
    if not verdict.equal:
        lines = [f"differs from its anti-join: {verdict.missing:,} missing, {verdict.surplus:,} surplus; {pending}"]
    if verdict.repaired:
        lines.append(f"{amount(verdict.repaired, 'difference')} repaired")
    if verdict.held:
        lines.append(f"{amount(verdict.held, 'key')} not read at present, because they are leased or failed")
    if verdict.stale:
        lines.append(f"{amount(verdict.stale, 'key')} offered though covered: reading withdraws them")
    if verdict.raced:
        lines.append(f"{amount(verdict.raced, 'key')} differed only for a moment, because they are being written")
    return lines


def show_status(out: Output, seen: QueueStatus) -> None:
    phase = str(seen.phase)
    rows: list[tuple[str, str]] = [("phase", phase), ("on", seen.on)]
    rows.append(("read from", "the queue" if phase == "switched" else "the anti-join"))
    if seen.filling is not None:
        rows.append(("backfill", _filling(seen.filling)))
    if seen.verdict is not None:
        equal = "equal" if seen.verdict.equal else f"{seen.verdict.missing + seen.verdict.surplus:,} differ"
        rows.append(("verified", f"{equal}, {ago_text(seen.verdict.at, seen.now)}"))
    if seen.offered is not None:
        size = "" if seen.bytes is None else f", {bytes_text(seen.bytes)}"
        rows.append(("offered", f"{seen.offered:,} ({seen.withdrawn:,} withdrawn to be removed{size})"))
        rows.append(("oldest", _oldest(seen)))
        rows += [("garbage", f"{number:,} in {table}") for table, number in (seen.garbage or {}).items() if number]
    rows.append(("leased", _held(seen.leased, seen.now, "ran out")))
    rows.append(("retrying", _held(seen.retrying, seen.now, "are due")))
    rows.append(("parked", _held(seen.parked, seen.now, "are due")))
    out.line(seen.name)
    for label, text in rows:
        out.line(f"  {label:<10} {text}")
    if phase in _NEXT:
        out.line(next_step(seen.name, _NEXT[phase]))


def _filling(filling: Filling) -> str:
    how_far = "complete" if filling.complete else f"{filling.share:.0%} of the key range"
    return f"{how_far}, {amount(filling.keys, 'key')}, {filling.pending:,} pending, {seconds_text(filling.took / 1000)}"


def _oldest(seen: QueueStatus) -> str:
    if seen.oldest_key is None:
        return "-"
    when = "" if seen.oldest_at is None else f", {ago_text(round(seen.oldest_at.timestamp() * 1000), seen.now)}"
    return f"key {key_text(seen.oldest_key)}{when}"


def _held(count: Held, now: int, due: str) -> str:
    if not count.keys or count.since is None:
        return "0"
    more = f"{count.due:,} of them {due}, " if count.due else ""
    return f"{count.keys:,} ({more}the oldest for {span_text(now - count.since)})"


def parked_dict(key: QueueKey, hold: KeyLease) -> dict[str, Any]:
    return {"key": key, "attempts": hold.attempts, "since": hold.since, "error": hold.error}


def show_parked(out: Output, holds: Mapping[QueueKey, KeyLease]) -> None:
    if not holds:
        out.line("No key is parked.")
        return
    rows = [[key_text(key), each.attempts, moment_text(each.since), each.error] for key, each in holds.items()]
    out.table(None, ["key", "attempts", "parked", "why"], rows)


QueueArgument = Annotated[str, typer.Argument(metavar="NAME", help="A queue by its name.", show_default=False)]
SqlOption = Annotated[
    bool, typer.Option("--sql", help="Print the statements that would run, and run none.", show_default=False)
]


def show_statements(out: Output, statements: Sequence[str]) -> None:
    """Print statements as a script."""

    def show() -> None:
        for each in statements:
            out.line(f"{each.rstrip().rstrip(';')};\n")

    out.result(list(statements), show)
