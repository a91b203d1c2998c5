"""Events of the ledger: what happened to instances and wants, as values and as text.

An event is a fact in the past tense, with the UUIDs of instances (jobs bind to those) and the references of
partitions (wants bind to these). What follows from it is for the fold to say (`domain.fold`), so no event says
it again: there is none for the states of wants, nor for the new instance that a taint, an expiry or a failure makes.

In the log an event has a kind, a schema version and a JSON object. Any change of an event's fields makes a new
version, and an upcaster brings the older one to it when it is read: what is in the log is never rewritten. An
event that cannot be read is `Unreadable`, with a name and a reason, and never an exception.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from instep.domain.counts import Counts
from instep.domain.instances import Reason
from instep.domain.settings import JobSettings
from instep.domain.wants import Retries

#: Fields of an event of an older version → those of the next version. May raise for what it cannot read.
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

Text = Annotated[str, Meta(min_length=1)]
#: Milliseconds since 1970, or a watermark; what every ledger can store.
Time = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Event(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The base of all events. Keyword arguments are for those who write them; positions may change."""

    KIND: ClassVar[str]
    VERSION: ClassVar[int] = 1


class InstanceCreated(Event, frozen=True, kw_only=True):
    """A build is wanted that no other event makes the instance for: the first one of a partition or of a
    generation, or a new one for a Live instance (a rebuild that was asked for, a changed fingerprint).
    """

    KIND: ClassVar[str] = "instance.created"

    ref: Text
    reason: Reason
    generation: str = ""
    by: str = ""


class InstanceImported(Event, frozen=True, kw_only=True):
    """An instance made before there was an event log: it is Live and served. Its UUID is `instance_id(ref, build)`."""

    KIND: ClassVar[str] = "instance.imported"

    ref: Text
    build: Time
    job: Text
    watermark: Time
    physical: Text
    fingerprint: dict[str, str]


class InstanceBuilding(Event, frozen=True, kw_only=True):
    """A job began to build an instance, from these inputs and of the window (floor, target]."""

    KIND: ClassVar[str] = "instance.building"

    instance: Text
    job: Text
    target: Time
    fingerprint: dict[str, str]
    floor: Time = 0
    revision: str = ""
    inputs: tuple[str, ...] = ()


class InstanceLive(Event, frozen=True, kw_only=True):
    """The job has built it: everything up to the watermark is in the target."""

    KIND: ClassVar[str] = "instance.live"

    instance: Text
    job: Text
    watermark: Time
    physical: Text
    counts: Counts


class InstanceFailed(Event, frozen=True, kw_only=True):
    """The build failed. `retry`: it will be tried again with a new instance, and wants go on waiting for that."""

    KIND: ClassVar[str] = "instance.failed"

    instance: Text
    job: Text
    error: str
    retry: bool = False


class InstanceRefreshing(Event, frozen=True, kw_only=True):
    """A job began to bring a Live instance up to date, by the window (floor, target]."""

    KIND: ClassVar[str] = "instance.refreshing"

    instance: Text
    job: Text
    floor: Time
    target: Time
    inputs: tuple[str, ...] = ()


class InstanceRefreshed(Event, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "instance.refreshed"

    instance: Text
    job: Text
    watermark: Time
    counts: Counts


class RefreshFailed(Event, frozen=True, kw_only=True):
    """The instance is Live as before. `retry`: wants that it does not satisfy go on waiting."""

    KIND: ClassVar[str] = "instance.refresh-failed"

    instance: Text
    job: Text
    error: str
    retry: bool = False


class InstanceTainted(Event, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "instance.tainted"

    instance: Text
    why: str = ""
    by: str = ""


class InstanceExpired(Event, frozen=True, kw_only=True):
    """The instance is past its time to live (in ms; 0: a user expired it)."""

    KIND: ClassVar[str] = "instance.expired"

    instance: Text
    ttl: Time = 0
    by: str = ""


class InstanceServed(Event, frozen=True, kw_only=True):
    """Readers of its generation get this instance now."""

    KIND: ClassVar[str] = "instance.served"

    instance: Text
    by: str = ""


class GenerationPromoted(Event, frozen=True, kw_only=True):
    """Readers of the partition that name no generation get this one now. (The first generation that is served of a
    partition needs no such event.)
    """

    KIND: ClassVar[str] = "generation.promoted"

    ref: Text
    generation: str
    by: str = ""


class PartitionDropped(Event, frozen=True, kw_only=True):
    """The partition is no longer indexed, in any of its `generations`. Its instances become history."""

    KIND: ClassVar[str] = "partition.dropped"

    ref: Text
    generations: tuple[str, ...] = ("",)
    by: str = ""


class Collected(Event, frozen=True, kw_only=True):
    """Old instances that were left, and old wants that have ended, are forgotten: one batch of them."""

    KIND: ClassVar[str] = "collected"

    instances: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()


class WantCreated(Event, frozen=True, kw_only=True):
    """A want was made for partitions as of a watermark, or not older than `fresh_within` (in ms) now, or at all.

    `traceparent` is the trace of the request, if there is one; `settings` are those of the job that serves it. Without
    `retries` its first failure ends it.
    """

    KIND: ClassVar[str] = "want.created"
    VERSION: ClassVar[int] = 3

    want: Text
    refs: tuple[str, ...]
    generation: str = ""
    fresh_within: Time | None = None
    as_of: Time | None = None
    by: str = ""
    traceparent: str = ""
    settings: JobSettings | None = None
    retries: Retries | None = None


class WantFailed(Event, frozen=True, kw_only=True):
    """An attempt of a want is spent: no job could be made for it, or an error has stopped the one that works on it
    (`job`). `final`: it can never be done.
    """

    KIND: ClassVar[str] = "want.failed"

    want: Text
    error: str
    final: bool = False
    job: Text = ""


class WantCanceled(Event, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "want.canceled"

    want: Text
    by: str = ""
    why: str = ""


class DependencyMissed(Event, frozen=True, kw_only=True):
    """A job cannot build these instances before others are there: it makes a derivative want for what is `missing`."""

    KIND: ClassVar[str] = "dependency.missed"

    job: Text
    instances: tuple[str, ...]
    want: Text
    missing: tuple[str, ...]
    generation: str = ""
    as_of: Time | None = None


class Unreadable(Struct, frozen=True, gc=False):
    """An event (or a snapshot) that cannot be read. `name` is what it is counted by, `reason` is for people."""

    name: str
    reason: str


class Recorded(Struct, frozen=True, gc=False):
    """An event in the log: sequences begin with 1 and have no gaps; `at` is the ledger's time in ms."""

    sequence: int
    at: int
    event: Event | Unreadable


class Catalogue:
    """Kinds of events in their newest versions, and how older versions are brought to these."""

    def __init__(self, types: Iterable[type[Event]], upcasters: Mapping[tuple[str, int], Upcaster]) -> None:
        self.types = {each.KIND: each for each in types}
        self._upcasters = upcasters
        self._decoders = {kind: (each.VERSION, msgspec.json.Decoder(each).decode) for kind, each in self.types.items()}
        for kind, each in self.types.items():
            for version in range(1, each.VERSION):
                if (kind, version) not in upcasters:
                    raise ValueError(f"version {version} of {kind} has no upcaster")

    def decode(self, kind: str, version: int, text: str) -> Event | Unreadable:
        known = self._decoders.get(kind)
        if known is None:
            return Unreadable("unknown-kind", f"no event is called {kind!r}")
        newest, decoded = known
        try:
            if version == newest:
                return decoded(text)
            if not 1 <= version < newest:
                return Unreadable("unknown-version", f"{kind} has no version {version}, the newest known is {newest}")
            return self._upcast(kind, version, text)
        except (ValueError, RecursionError) as error:
            # All that msgspec raises are ValueErrors, and so is text with half a character.
            return Unreadable("malformed", f"{kind}: {error}")

    def read(self, rows: Iterable[tuple[int, int, str, int, str]]) -> Iterator[Recorded]:
        """Rows of the log (sequence, at, kind, version, text) as events, those that cannot be read among them."""
        decoders, none = self._decoders, (0, None)
        for sequence, at, kind, version, text in rows:
            newest, decoded = decoders.get(kind, none)
            # Nearly every event is readable as it is; what is not is looked at again, for the reason why.
            try:
                event = decoded(text) if decoded and version == newest else self.decode(kind, version, text)
            except (ValueError, RecursionError):
                event = self.decode(kind, version, text)
            yield Recorded(sequence, at, event)

    def _upcast(self, kind: str, version: int, text: str) -> Event | Unreadable:
        fields = msgspec.json.decode(text, type=dict[str, Any])
        target = self.types[kind]
        try:
            for older in range(version, target.VERSION):
                fields = self._upcasters[kind, older](fields)
        except Exception as error:  # An upcaster meets whatever was written; one bad event must not stop a replay.
            return Unreadable("malformed", f"{kind}, version {version}: {type(error).__name__}: {error}")
        return msgspec.convert(fields, target)


def encode(event: Event) -> str:
    try:
        return msgspec.json.encode(event).decode()
    except UnicodeEncodeError:
        # Half a character, in an error that names a file perhaps: readable but for that is better than none.
        text = json.dumps(msgspec.to_builtins(event), ensure_ascii=False)
        return text.encode("utf-8", "replace").decode()


#: By kind and version: what brings an event of that version to the next one.
UPCASTERS: dict[tuple[str, int], Upcaster] = {
    (WantCreated.KIND, 1): lambda fields: fields,
    (WantCreated.KIND, 2): lambda fields: fields,
}

EVENTS = Catalogue(
    (
        InstanceCreated,
        InstanceImported,
        InstanceBuilding,
        InstanceLive,
        InstanceFailed,
        InstanceRefreshing,
        InstanceRefreshed,
        RefreshFailed,
        InstanceTainted,
        InstanceExpired,
        InstanceServed,
        GenerationPromoted,
        PartitionDropped,
        Collected,
        WantCreated,
        WantFailed,
        WantCanceled,
        DependencyMissed,
    ),
    UPCASTERS,
)

decode = EVENTS.decode
read = EVENTS.read
