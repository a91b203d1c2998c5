"""State of instances and wants, as folded from the ledger's events, and the changes of one event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from instep.domain.instances import Instance
from instep.domain.refs import UNNAMED, Naming
from instep.domain.wants import Want

Key = tuple[str, str]


class Canonical(Struct, frozen=True, gc=False):
    """A change: which instance is canonical for a partition's generation now."""

    ref: str
    generation: str
    uuid: str


class Served(Struct, frozen=True, gc=False):
    """A change: which instance is served for a partition's generation now."""

    ref: str
    generation: str
    uuid: str


class Promoted(Struct, frozen=True, gc=False):
    """A change: the generation of a partition that is read by default."""

    ref: str
    generation: str


class Dropped(Struct, frozen=True, gc=False):
    """A change: nothing is canonical or served of these generations of a partition, and none is promoted any more."""

    ref: str
    generations: tuple[str, ...]


class Forgotten(Struct, frozen=True, gc=False):
    """A change: these instances and wants are not in the state any more."""

    instances: tuple[str, ...]
    wants: tuple[str, ...]


#: What an event changed: the new values, in order. The same one may be there twice; the last is what it is now.
Change = Instance | Want | Canonical | Served | Promoted | Dropped | Forgotten


class Rejected(Struct, frozen=True, gc=False):
    """An event that is not possible now: `name` is what it is counted by, `reason` is for people."""

    name: str
    reason: str


@dataclass(slots=True)
class State:
    """The state after the event `sequence`: all instances and wants. `skipped` counts the events that had no effect, by
    name.

    `served` is what is read of each generation, `promoted` the generation of each partition that is read by those who
    ask for none. `open` are the wants that have not ended, by what they wait for, in the order
    of their creation. `naming` is the ledger's: no event changes it.
    """

    sequence: int = 0
    instances: dict[str, Instance] = field(default_factory=dict)
    canonical: dict[Key, str] = field(default_factory=dict)
    served: dict[Key, str] = field(default_factory=dict)
    promoted: dict[str, str] = field(default_factory=dict)
    wants: dict[str, Want] = field(default_factory=dict)
    open: dict[Key, dict[str, None]] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    naming: Naming = UNNAMED
    #: Equal texts (revisions, users) and fingerprints are kept once.
    texts: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    fingerprints: dict[tuple[str, ...], Mapping[str, str]] = field(default_factory=dict, compare=False, repr=False)

    def current(self, ref: str, generation: str = "") -> Instance | None:
        """The canonical instance."""
        uuid = self.canonical.get((ref, generation))
        return None if uuid is None else self.instances[uuid]

    def generations(self, ref: str) -> list[str]:
        """The generations of a partition, the oldest first."""
        return [generation for each, generation in self.canonical if each == ref]

    def reading(self, ref: str, generation: str | None = None) -> Instance | None:
        """The instance that readers of a generation get; without one, of the promoted generation."""
        if generation is None:
            generation = self.promoted.get(ref, "")
        uuid = self.served.get((ref, generation))
        return None if uuid is None else self.instances[uuid]

    def open_wants(self, ref: str, generation: str = "") -> list[Want]:
        return [self.wants[each] for each in self.open.get((ref, generation), ())]

    def copy(self) -> State:
        return State(
            self.sequence,
            dict(self.instances),
            dict(self.canonical),
            dict(self.served),
            dict(self.promoted),
            dict(self.wants),
            {key: dict(ids) for key, ids in self.open.items()},
            dict(self.skipped),
            self.naming,
            dict(self.texts),
            dict(self.fingerprints),
        )

    def text(self, text: str) -> str:
        """The one of all texts that are equal to this one."""
        return self.texts.setdefault(text, text)

    def fingerprint(self, fingerprint: Mapping[str, str]) -> Mapping[str, str]:
        """The one of all fingerprints that are equal to this one."""
        return self.fingerprints.setdefault((*fingerprint, *fingerprint.values()), fingerprint)
