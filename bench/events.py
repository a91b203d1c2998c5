"""How fast the event log is folded, and how soon a ledger with a long one is ready: `python -m bench.events`.

The log is made up, but lives like a real one: partitions that are built, refreshed again and again, tainted, rebuilt,
that fail and are wanted by several people; what is old is collected. It is folded as a ledger reads it, from pages of
rows with JSON; to read the pages from a database takes its own time. Times are CPU seconds of this process, so that
others do not count. Memory is the sum over all objects that instances are made of (wants have a row of their own). How
fast events are appended is measured too, on real databases: see `bench.appending`.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import sqlite3
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from msgspec import Struct
from msgspec.structs import astuple

from bench import report
from instep.domain import events as e
from instep.domain.counts import COUNT_FIELDS, Counts
from instep.domain.fold import replay
from instep.domain.instances import Reason
from instep.domain.refs import PartitionRef, Scope, event_instance_id
from instep.domain.snapshot import dump, load
from instep.domain.state import State
from instep.system import collect_garbage_seldom

EVENTS, PARTITIONS, ROUNDS = 1_000_000, 20_000, 3
#: Partitions that jobs are busy with at the same time.
BUSY = 64
#: Old instances, and wants, that are not collected yet.
KEPT = 20_000
#: Rows that are read at once.
PAGE = 10_000
#: Events after the snapshot that a start has to fold too.
REST = 1_000
GOAL_RATE, GOAL_START, GOAL_MEMORY = 200_000, 2.0, 1000

Row = tuple[int, int, str, int, str]
#: What a partition does next; it is told the sequence that its event got.
Life = Generator[e.Event, int, None]

_FINGERPRINTS = [dict.fromkeys(("chunker", "embedder", "schema", "transform"), f"{number:016x}") for number in range(5)]
_START = 1_790_000_000_000


class Log:
    """Rows of a log of so many events, the same for the same seed."""

    def __init__(self, seed: int, partitions: int, start: int = _START) -> None:
        self._random = random.Random(seed)
        self._now = start
        self._ids = itertools.count(1)
        #: What can be collected: instances that were left and are not served, wants that have ended.
        self._left: deque[str] = deque()
        self._done: deque[str] = deque()
        self._lives = [
            self._life(str(PartitionRef("Document" if number % 2 else "Chunk", Scope(f"{number}/"))))
            for number in range(partitions)
        ]
        self._busy = [self._random.randrange(partitions) for _ in range(BUSY)]

    def rows(self, count: int) -> Iterator[Row]:
        sequence = 0
        given: dict[int, int] = {}
        for sequence in range(1, count + 1):
            self._now += self._random.randrange(100)
            if sequence % 1000 == 0:
                event: e.Event = e.Collected(instances=_oldest(self._left), wants=_oldest(self._done))
            else:
                number = self._next()
                life = self._lives[number]
                event = life.send(given[number]) if number in given else next(life)
                given[number] = sequence
            yield sequence, self._now, event.KIND, event.VERSION, e.encode(event)

    def _next(self) -> int:
        """Mostly a partition that a job is busy with, and these change one by one; else any."""
        if self._random.random() < 0.1:
            return self._random.randrange(len(self._lives))
        place = self._random.randrange(len(self._busy))
        if self._random.random() < 0.1:
            self._busy[place] = self._random.randrange(len(self._lives))
        return self._busy[place]

    def _id(self) -> str:
        return f"{next(self._ids):08x}-4f5e-7a1b-9c3d-0123456789ab"

    def _life(self, ref: str) -> Life:
        sequence = yield e.InstanceCreated(ref=ref, reason=Reason.FIRST, by="plan")
        served = None
        waiting: list[str] = []
        while True:
            uuid = event_instance_id(ref, "", sequence)
            if self._random.random() < 0.5:
                yield self._want(ref, waiting)
            job, target = self._id(), self._now
            yield e.InstanceBuilding(
                instance=uuid,
                job=job,
                target=target,
                fingerprint=self._random.choice(_FINGERPRINTS),
                revision="3f786850e387550fdab836ed7e6dc881de23001b",
            )
            for _ in range(self._random.choice((0, 0, 1, 3))):
                yield self._want(ref, waiting)
            if self._random.random() < 0.05:
                sequence = yield e.InstanceFailed(instance=uuid, job=job, error="the target is full", retry=True)
                self._left.append(uuid)
                continue
            yield e.InstanceLive(
                instance=uuid, job=job, watermark=target, physical=f"lance/{uuid[:8]}", counts=self._counts()
            )
            self._ended(waiting)
            yield e.InstanceServed(instance=uuid)
            if served is not None:
                self._left.append(served)
            served = uuid
            yield from self._refreshes(ref, uuid, waiting)
            why = self._random.random()
            if why < 0.5:
                sequence = yield e.InstanceTainted(instance=uuid, why="the source was repaired", by="someone")
            elif why < 0.8:
                sequence = yield e.InstanceExpired(instance=uuid, ttl=86_400_000)
            else:
                sequence = yield e.InstanceCreated(ref=ref, reason=Reason.FINGERPRINT)

    def _refreshes(self, ref: str, uuid: str, waiting: list[str]) -> Life:
        for _ in range(self._random.randrange(6)):
            if self._random.random() < 0.5:
                yield self._want(ref, waiting, fresh_within=60_000)
            job = self._id()
            target = self._now
            yield e.InstanceRefreshing(instance=uuid, job=job, floor=_START - 1_000_000, target=target)
            yield e.InstanceRefreshed(instance=uuid, job=job, watermark=target, counts=self._counts())
            self._ended(waiting)

    def _want(self, ref: str, waiting: list[str], fresh_within: int | None = None) -> e.WantCreated:
        waiting.append(self._id())
        return e.WantCreated(want=waiting[-1], refs=(ref,), fresh_within=fresh_within, by="someone")

    def _ended(self, waiting: list[str]) -> None:
        self._done += waiting
        waiting.clear()

    def _counts(self) -> Counts:
        written = self._random.randrange(10_000)
        skipped = self._random.randrange(10_000)
        return Counts(
            read=written + skipped, written=written, skipped=skipped, rows_written=written * 7, bytes_read=written * 900
        )


def _oldest(of: deque[str]) -> tuple[str, ...]:
    """What was left longest ago: never much in one event, and the newest are kept."""
    return tuple(of.popleft() for _ in range(min(500, max(0, len(of) - KEPT))))


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that was measured; rates per second, times in seconds, sizes in bytes."""

    rates: Sequence[float]
    decoding: float
    starts: Sequence[float]
    snapshot: int
    state: State
    per_instance: float
    per_want: float


class Stored:
    """A log in a database. `pages` are read outside of what is timed, and are gone when they have been folded."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE events (sequence INTEGER PRIMARY KEY, at, kind, version, body)")
        self._database.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)

    def pages(self) -> Iterator[list[Row]]:
        rows = self._database.execute("SELECT * FROM events ORDER BY sequence")
        while page := rows.fetchmany(PAGE):
            yield page


def timed(task: Callable[[], object]) -> float:
    started = time.process_time()
    task()
    return time.process_time() - started


def measure(events: int, partitions: int, rounds: int) -> Figures:
    made = Log(1, partitions).rows(events + REST)
    log = Stored(itertools.islice(made, events))
    rest = list(made)
    collect_garbage_seldom()
    gc.collect()
    rates = [events / fold(log)[0] for _ in range(rounds)]
    decoding = events / sum(timed(partial(deque, e.read(page), 0)) for page in log.pages())
    _, state = fold(log)
    snapshot = dump(state)
    starts = [timed(lambda: start(snapshot, rest)) for _ in range(rounds)]
    whole = replay(e.read(rest), state)
    loaded = start(snapshot, rest)
    if loaded != whole:
        raise SystemExit("the snapshot and the rest of the log do not give what all of the log does")
    per_instance = max(size(each.instances, each.canonical, each.served) for each in (whole, loaded)) / len(
        whole.instances
    )
    per_want = max(size(each.wants, each.open) for each in (whole, loaded)) / max(1, len(whole.wants))
    return Figures(rates, decoding, starts, len(snapshot), whole, per_instance, per_want)


def fold(log: Stored) -> tuple[float, State]:
    """CPU seconds, and the state."""
    state = State()
    return sum(timed(partial(replay, e.read(page), state)) for page in log.pages()), state


def start(snapshot: bytes, rest: Sequence[Row]) -> State:
    state = load(snapshot)
    assert isinstance(state, State)
    return replay(e.read(rest), state)


def size(*roots: object) -> int:
    """Bytes of these objects and all that they are made of, each counted once."""
    seen: set[int] = set()
    total = 0
    pending = list(roots)
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen or isinstance(each, Enum):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, dict):
            pending += [*each.keys(), *each.values()]
        elif isinstance(each, tuple):
            pending += each
        elif isinstance(each, Struct):
            pending += astuple(each)
        elif isinstance(each, Counts):
            pending += [getattr(each, name) for name in COUNT_FIELDS]
    return total


def rows_of(figures: Figures) -> tuple[list[str], list[list[str]]]:
    rate, begun = statistics.median(figures.rates), statistics.median(figures.starts)
    return ["what", "goal", "reached", "", "all rounds"], [
        [
            "fold, events/s",
            f"at least {GOAL_RATE:,}",
            f"{rate:,.0f}",
            "met" if rate >= GOAL_RATE else "MISSED",
            " ".join(f"{each:,.0f}" for each in figures.rates),
        ],
        [
            "start from a snapshot, s",
            f"under {GOAL_START:g}",
            f"{begun:.2f}",
            "met" if begun < GOAL_START else "MISSED",
            " ".join(f"{each:.2f}" for each in figures.starts),
        ],
        [
            "memory, bytes an instance",
            f"under {GOAL_MEMORY:,}",
            f"{figures.per_instance:,.0f}",
            "met" if figures.per_instance < GOAL_MEMORY else "MISSED",
            "",
        ],
        ["memory, bytes a want", "", f"{figures.per_want:,.0f}", "", ""],
        ["decoding alone, events/s", "", f"{figures.decoding:,.0f}", "", ""],
        ["snapshot, MB", "", f"{figures.snapshot / 1e6:.1f}", "", ""],
        ["instances", "", f"{len(figures.state.instances):,}", "", ""],
        ["wants", "", f"{len(figures.state.wants):,}", "", ""],
        ["events rejected", "", f"{sum(figures.state.skipped.values()):,}", "", ""],
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    from bench import appending  # It needs the log above.

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--appends", type=int, default=appending.EVENTS, help="how many to append; 0: none")
    options = parser.parse_args(arguments)
    figures = measure(options.events, options.partitions, options.rounds)
    heads, found = rows_of(figures)
    report.show(f"{options.events:,} events about {options.partitions:,} partitions", heads, found)
    if options.appends:
        appended = [each.row() for each in appending.measure(options.appends, options.rounds)]
        report.show(f"{options.appends:,} events appended to a ledger", heads, appended)
        found += appended
    if any("MISSED" in row for row in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
