"""The state of a table as its runs have seen it, and the window of the next one: no row is lost that comes late.

The floor of a run is the greatest watermark that was seen, not the time of the run before: what is written after a run
with a watermark of an hour ago is above it, if nothing newer was there. Rows may still come at or below the floor: a
transaction that was open when others had committed, a tie, a clock that is behind. So a run also looks at the *margin*,
which is what lies at most the lag below the floor, and at all rows without a watermark. It asks the source for their
number and a digest of their contents. As long as these are as they were, the rows are as they were; when they differ,
those that were not there before are read.

| in the margin | the next run reads |
| --- | --- |
| nothing differs | what is above the floor |
| some rows came, or are other ones (`MARKED` at most are told apart) | from the least watermark of these on |
| more rows than that | all of the margin |
| rows without a watermark came or are other ones | all that have none |
| rows are gone | what is above the floor: a row that is deleted for good is found by `instep reconcile` |

Tables of files need none of this: the files that were read are known, and new or changed ones are read whole, whatever
their rows say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from instep.domain.rows import Window
from instep.domain.storable import pack, unpack
from instep.domain.table_files import Files
from instep.domain.table_versions import TableVersion
from instep.domain.topic_offsets import Offsets

#: Rows of the margin that are known one by one.
MARKED: Final = 10_000
#: Late rows that are named.
_NAMED: Final = 5


class RowMark(NamedTuple):
    """A row of the margin: its key as text, its watermark (µs), and a digest of its contents."""

    key: str
    watermark: int | None
    digest: int


class Look(NamedTuple):
    """The answer of a source about rows by their watermarks (µs): the greatest up to a target, how many have none, and
    the number and a digest of those that have none or one at or below the floor.
    """

    latest: int | None
    without: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Late:
    """Rows that were seen late: at or below the floor of a run, after it. `exact`: none beside these. `at`: when it was
    seen (ms).
    """

    rows: int
    examples: tuple[str, ...]
    exact: bool
    at: int

    def as_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "examples": list(self.examples), "exact": self.exact, "at": self.at}

    @classmethod
    def of(cls, value: dict[str, Any]) -> Late:
        return cls(value["rows"], tuple(value["examples"]), value["exact"], value["at"])

    def __str__(self) -> str:
        some = f", such as {', '.join(self.examples)}" if self.examples else ""
        few = "" if self.exact else "at least "
        return f"{few}{self.rows:,} {'row' if self.rows == 1 else 'rows'} came late{some}"


@dataclass(frozen=True, slots=True)
class Seen:
    """The part of a table that runs have seen: the greatest watermark (None: no row has one), and the margin below it
    with the rows that have none; or `files`. `marks` are digests of single rows of the margin; None: there are more
    than `MARKED`. `rows` is -1 when nothing is known of the margin. `lag` (µs): how far down it goes.
    `reconciled`: when all keys were compared, or all rows read (ms). `version` is that of a table that keeps them,
    `offsets` those of a topic.
    """

    floor: int | None = None
    lag: int = 0
    rows: int = -1
    digest: str = ""
    marks: frozenset[int] | None = None
    files: Files | None = None
    late: Late | None = None
    reconciled: int | None = None
    version: TableVersion | None = None
    offsets: Offsets | None = None

    def encode(self) -> bytes:
        """All but the late rows, which are kept beside it."""
        marks = None if self.marks is None else sorted(self.marks)
        version = () if self.version is None else (str(self.version),)
        head = pack([self.floor, self.lag, self.rows, self.digest, marks, self.reconciled, *version])
        rest = b"" if self.files is None else b"f" + self.files.encode()
        rest = rest if self.offsets is None else b"o" + self.offsets.encode()
        return len(head).to_bytes(4, "big") + head + rest

    @classmethod
    def decode(cls, data: bytes, late: Late | None = None) -> Seen:
        size = int.from_bytes(data[:4], "big")
        floor, lag, rows, digest, marks, reconciled, *version = unpack(data[4 : 4 + size])
        rest = data[4 + size :]
        return cls(
            floor,
            lag,
            rows,
            digest,
            None if marks is None else frozenset(marks),
            Files.decode(rest[1:]) if rest[:1] == b"f" else None,
            late,
            reconciled,
            TableVersion.parse(version[0]) if version else None,
            offsets=Offsets.decode(rest[1:]) if rest[:1] == b"o" else None,
        )

    def within(self, lag: int) -> Seen:
        """The same, with nothing known of a margin that goes down further, or less far."""
        return (
            self if lag == self.lag or self.files else Seen(self.floor, lag, late=self.late, reconciled=self.reconciled)
        )


def margin_start(floor: int, lag: int) -> int:
    """The margin has the watermarks above this, up to the floor itself: rows of one moment come one by one."""
    return floor - lag - 1


class Step(NamedTuple):
    """The window of the next run; None: nothing is to be read. `late` rows are in it."""

    window: Window | None
    late: Late | None = None


def differs(seen: Seen, look: Look) -> bool:
    """Whether the margin, or what is without a watermark, is not as it was."""
    return (seen.rows, seen.digest) != (look.rows, look.digest)


def next_step(seen: Seen, look: Look, marks: Sequence[RowMark] | None, *, target: int, now: int) -> Step:
    """The next window. `look` was asked above the start of the margin. `marks` are the rows of the margin, if it
    `differs`; None: there are too many, or it was not asked.
    """
    floor = seen.floor
    if floor is None:
        return Step(Window(None, target) if look.latest is not None or differs(seen, look) else None)
    newer = look.latest is not None and look.latest > floor
    if not differs(seen, look):
        return Step(Window(floor, target) if newer else None)
    if marks is None or seen.marks is None:
        known = seen.rows >= 0
        came = look.rows - seen.rows if known else 0
        late = Late(came, (), exact=False, at=now) if came > 0 else None
        return Step(Window(margin_start(floor, seen.lag), target, unmarked=look.without > 0), late)
    new = [each for each in marks if each.digest not in seen.marks]
    below = [each for each in new if each.watermark is not None]
    unmarked = len(below) < len(new)
    if not new and not newer:
        return Step(None)
    lowest = min([floor, *(each.watermark - 1 for each in below if each.watermark is not None)])
    return Step(Window(lowest, target, unmarked=unmarked), _late(below, now))


def _late(rows: Collection[RowMark], now: int) -> Late | None:
    if not rows:
        return None
    named = sorted(rows, key=lambda each: (each.watermark or 0, each.key))[:_NAMED]
    return Late(len(rows), tuple(each.key for each in named), exact=True, at=now)


def seen_after(floor: int | None, look: Look, marks: Sequence[RowMark] | None, *, lag: int) -> Seen:
    """The knowledge after a run that reaches this floor: `look` and `marks` are of the margin below it. They have to be
    asked before the look that the run's own window follows from: a row that comes between the two is read then, or is
    not known yet, and is found by the next run. The other way round it could be known and not read.
    """
    numbers = frozenset(each.digest for each in marks) if marks is not None else None
    return Seen(floor, lag, look.rows, look.digest, numbers)
