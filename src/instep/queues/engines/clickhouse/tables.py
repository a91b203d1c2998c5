"""Names of a queue's tables, columns and values in ClickHouse, and the rules of offers.

A row of an offer is merged by maximum with others of its key, at any time that ClickHouse chooses, and is dropped when
it is spent, whether or not all rows of its key were merged by then.

A row has the registers of the covers, and one of its own, `offer`: the version by which a row of the source offered
the key, or an event that took a cover back; even, and one more once it was withdrawn.

The register of a cover with a version column of its own is made of that, which says nothing about when the row came. It
stays in the truth: offers have 0 in its place, are made under versions of ClickHouse's, and are withdrawn by the read
that finds the key covered.

A key that is pending is offered, whatever was merged or dropped. Its covers' latest events are uncovering ones (even
registers), or there were none. A row is spent only if it has no even register of a cover, so the latest event of a
cover is not lost if it uncovered, and stands above all older ones; and it brought an offer with it. Without any event
of a cover, no row of the source's offers is spent, unless the key was withdrawn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from instep.clickhouse.session import literal, quoted
from instep.domain.pending_queue import MAX_TEXT, KeyKind, KeyRange, QueueCover, QueueKey, QueueSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


#: The event time of a row that is not of the source, so that any of the source is less; of one of the source that has
#: none; and of an offer that was made without looking it up, so that it is looked up in the truth.
NO_EVENT, NULL_EVENT, UNKNOWN_EVENT = 2**63 - 1, 2**63 - 2, -(2**63)

#: How often a version grows is up to ClickHouse: unique on a server, by the millisecond and a counter.
VERSION = "generateSnowflakeID()"

#: Of what the tables of a queue are like: one of another layout is none of ours.
_LAYOUT = 2

#: A cover that was there before live capture: less than any version of an event.
BACKFILLED = 1

#: Beside a version of the user's: more than `BACKFILLED`, and covering when odd.
_COVERS, _UNCOVERS = 3, 4
_LARGEST_VERSION = 2**62


@dataclass(frozen=True)
class Tables:
    """The names and columns of one queue's tables."""

    spec: QueueSpec

    @property
    def truth(self) -> str:
        return self.name("truth")

    @property
    def offers(self) -> str:
        return self.name("offers")

    @property
    def touched(self) -> str:
        return self.name("touched")

    @property
    def acknowledged(self) -> str:
        return self.name("acknowledged")

    @property
    def marks(self) -> str:
        return self.name("marks")

    @property
    def participants(self) -> str:
        return self.name("participants")

    def name(self, what: str) -> str:
        """Unquoted: a table or view of the queue. What it is comes first, so that no two queues can share one."""
        return f"instep_queue_{what}_{self.spec.name}"

    def all(self) -> list[str]:
        """The truth last: it says that the queue exists."""
        some = [self.participants] if self.spec.participants else []
        return [*some, self.marks, self.acknowledged, self.offers, self.touched, self.truth]

    @cached_property
    def covers(self) -> tuple[QueueCover, ...]:
        """The declared covers, and the one of consumers."""
        return *self.spec.covers, QueueCover(self.acknowledged, "covered = 1", "covered = 0")

    @cached_property
    def registers(self) -> list[str]:
        """A column for each cover."""
        return [f"cover_{number}" for number in range(len(self.covers))]

    @cached_property
    def versioned(self) -> list[str]:
        """The registers that are made of the user's own versions."""
        return [name for name, cover in zip(self.registers, self.covers, strict=True) if cover.version is not None]

    @cached_property
    def dated(self) -> list[str]:
        """The registers that are made of versions of ClickHouse's, which say when an event was."""
        return [name for name in self.registers if name not in self.versioned]

    def declaration(self) -> str:
        """The same for the same tables and views. How they are read is no part of it."""
        said = json.dumps({"layout": _LAYOUT, **self.spec.declared()}, default=str, sort_keys=True)
        return "instep:queue:" + hashlib.sha256(said.encode()).hexdigest()[:32]

    @property
    def whole(self) -> bool:
        """Whether keys are integers. Others are strings, UUIDs too: ClickHouse has these in an order of its own."""
        return self.spec.kind is KeyKind.INTEGER

    @property
    def type(self) -> str:
        """The type of the key in the queue's own tables."""
        return "Int64 CODEC(Delta, LZ4)" if self.whole else "String"

    def own(self, value: str) -> str:
        """A user's value as a key, where `within` holds."""
        return f"toInt64(assumeNotNull({value}))" if self.whole else f"CAST(assumeNotNull({value}), 'String')"

    def key_sql(self) -> str:
        """The key of a source row where `within` holds."""
        return self.own(quoted(self.spec.key))

    @property
    def compared(self) -> str:
        """The key column of a user's row, as it is compared with keys."""
        key = quoted(self.spec.key)
        return f"toString({key})" if self.spec.kind is KeyKind.UUID else key

    def within(self, keys: KeyRange | None = None) -> str:
        """The key of a user's row is none of the garbage, and in this range of `keys`."""
        key = self.compared
        possible = {
            KeyKind.INTEGER: "",
            KeyKind.TEXT: f" AND length({key}) <= {MAX_TEXT:d} AND isValidUTF8({key}) AND position({key}, '\\0') = 0",
            KeyKind.UUID: f" AND {key} IS NOT NULL",
        }
        return f"{self.between(key, keys)}{possible[self.spec.kind]}"

    def between(self, key: str, keys: KeyRange | None = None) -> str:
        """A key of the queue's is in this range of `keys`."""
        keys = self.spec.keys if keys is None else keys.within(self.spec.keys)
        beyond = [] if keys.after is None else [f"{key} > {self.constant(keys.after)}"]
        upto = [] if keys.upto is None else [f"{key} <= {self.constant(keys.upto)}"]
        return " AND ".join([*beyond, *upto]) or "1"

    def beyond(self, key: str, after: QueueKey | None) -> list[str]:
        """The condition of keys beyond `after` in the order of reading; none without it."""
        return [] if after is None else [f"{key} {'<' if self.spec.newest_first else '>'} {self.constant(after)}"]

    @property
    def order(self) -> str:
        """The order of reading, behind a column of ORDER BY."""
        return "DESC" if self.spec.newest_first else "ASC"

    def constant(self, key: QueueKey) -> str:
        return f"{key:d}" if self.whole else literal(key)

    @property
    def named(self) -> str:
        """The keys that are bound as `keys` (see `bound`), to be looked up. Texts are a subquery: of an array that is
        computed, ClickHouse may make no set, and then looks through all of it for each row.
        """
        return "{keys:Array(Int64)}" if self.whole else "(SELECT unhex(arrayJoin({keys:Array(String)})))"

    @property
    def each_named(self) -> str:
        """The same keys as rows."""
        return "arrayJoin({keys:Array(Int64)})" if self.whole else "unhex(arrayJoin({keys:Array(String)}))"

    def bound(self, keys: Iterable[QueueKey]) -> list[Any]:
        """Texts travel in hexadecimal, so that no client's way of quoting matters."""
        return list(keys) if self.whole else [each.encode().hex() for each in keys]

    def block(self, key: str) -> str:
        """The row of the touched keys that a key is in: sixty-four integers, or one text."""
        return f"bitShiftRight({key}, 6)" if self.whole else key

    def place(self, key: str) -> str:
        """The bit of a key in its block."""
        return f"bitAnd({key}, 63)" if self.whole else "0"

    def event_sql(self, event: str | None = None) -> str:
        """Microseconds of the event time, or of such a value; 0 if the queue has no event times."""
        if self.spec.source.event_time is None:
            return "toInt64(0)"
        micros = f"toUnixTimestamp64Micro(toDateTime64({event or self.spec.source.event_time}, 6, 'UTC'))"
        return f"toInt64(ifNull({micros}, {NULL_EVENT:d}))"


def user_table(name: str) -> str:
    """Quoted: `table`, or `database.table`."""
    return quoted(*name.split(".", 1))


def conditions(*each: str | None) -> str:
    """All conditions joined by AND. One of the user ends where it ends even if it ends in a comment."""
    return " AND ".join(f"({one}\n)" if "--" in one or "#" in one else f"({one})" for one in each if one)


def covered_sql(tables: Tables, cover: QueueCover, within: str) -> str:
    """The keys that a table covers now: `instep_key`, some of them several times."""
    final = " FINAL" if cover.uncovered is not None else ""
    where = conditions(within, cover.where)
    return f"SELECT {tables.key_sql()} AS instep_key FROM {user_table(cover.table)}{final} WHERE {where}"


def versioned_sql(tables: Tables, cover: QueueCover, within: str) -> str:
    """The latest event of each key by the table's own versions: `instep_key`, `instep_register`. At one version a cover
    is taken back, as if that came later: a read asks the table itself before it gives the key.
    """
    covers = conditions(cover.where or "1")
    either = f"{covers} OR {conditions(cover.uncovered)}"
    version = f"toUInt64(greatest(0, least({_LARGEST_VERSION:d}, toInt128({quoted(cover.version or '')}))))"
    return (
        f"SELECT {tables.key_sql()} AS instep_key,"
        f" max(2 * {version} + if(ifNull({covers}, 0) != 0, {_COVERS:d}, {_UNCOVERS:d})) AS instep_register"
        f" FROM {user_table(cover.table)} WHERE {conditions(within, either)} GROUP BY 1"
    )


def greatest(names: Sequence[str]) -> str:
    return f"greatest({', '.join(names)})" if len(names) > 1 else names[0]


def offered(offers: npt.NDArray[np.uint64], covers: Sequence[npt.NDArray[np.uint64]]) -> Any:
    """Merged rows that offer their keys."""
    return (offers > 0) & (reduce(or_, covers, offers) & 1 == 0)


def spent(offers: npt.NDArray[np.uint64], covers: Sequence[npt.NDArray[np.uint64]]) -> Any:
    """Merged rows that offer nothing, and stand above nothing that would hide an offer."""
    none_even = reduce(and_, ((each == 0) | (each & 1 == 1) for each in covers))
    return ~offered(offers, covers) & none_even


def offered_sql(offer: str, covers: Sequence[str]) -> str:
    joined = reduce(lambda one, other: f"bitOr({one}, {other})", covers, offer)
    return f"({offer} > 0 AND bitAnd({joined}, 1) = 0)"


def spent_sql(offer: str, covers: Sequence[str]) -> str:
    none_even = " AND ".join(f"({each} = 0 OR bitAnd({each}, 1) = 1)" for each in covers)
    return f"(NOT {offered_sql(offer, covers)} AND {none_even})"
