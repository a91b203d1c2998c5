"""Snapshots: a state as bytes, so that a replay begins near the end of the log.

A snapshot is only a shortcut: one that cannot be read, or was made under other rules (`FORMAT`), is `Unreadable`, and
the log is folded from its beginning instead. The same bytes are the start of a log whose first events were forgotten,
and that is no shortcut: formats from 5 on have to be read for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from instep.domain.events import Unreadable
from instep.domain.instances import Instance
from instep.domain.refs import UNNAMED, Naming
from instep.domain.state import State
from instep.domain.wants import Want

#: Grows with every change of what is written here, and of the rules of the fold.
FORMAT = 5


class _Head(Struct, frozen=True, gc=False, array_like=True):
    """The fields that every format begins with."""

    format: int


class _Snapshot(Struct, frozen=True, gc=False, array_like=True):
    """Fingerprints are written once: `prints` says which of them each instance has."""

    format: int
    sequence: int
    fingerprints: list[dict[str, str]]
    prints: list[int | None]
    instances: list[Instance]
    canonical: list[str]
    served: list[str]
    promoted: dict[str, str]
    wants: list[Want]
    skipped: dict[str, int]


_decoded = msgspec.msgpack.Decoder(_Snapshot).decode
_head = msgspec.msgpack.Decoder(_Head).decode


def dump(state: State) -> bytes:
    fingerprints: list[dict[str, str]] = []
    places: dict[int, int] = {}
    prints: list[int | None] = []
    for instance in state.instances.values():
        # The state keeps equal ones once, so that the object itself is the key.
        fingerprint = instance.fingerprint
        if fingerprint is None:
            prints.append(None)
            continue
        if id(fingerprint) not in places:
            places[id(fingerprint)] = len(fingerprints)
            fingerprints.append(dict(fingerprint))
        prints.append(places[id(fingerprint)])
    return msgspec.msgpack.encode(
        _Snapshot(
            FORMAT,
            state.sequence,
            fingerprints,
            prints,
            [replace(each, fingerprint=None) for each in state.instances.values()],
            list(state.canonical.values()),
            list(state.served.values()),
            state.promoted,
            list(state.wants.values()),
            state.skipped,
        )
    )


def load(snapshot: bytes, naming: Naming = UNNAMED) -> State | Unreadable:
    """The state that was dumped; folding the rest of the log on it gives what folding all of it does. How its ledger
    names instances is for the ledger to say.
    """
    try:
        found = _head(snapshot).format
        if found != FORMAT:
            return Unreadable("unknown-version", f"the snapshot has format {found}, this program reads {FORMAT}")
        return _state(_decoded(snapshot), naming)
    except (ValueError, LookupError) as error:
        return Unreadable("malformed", f"snapshot: {error}")


def _state(read: _Snapshot, naming: Naming) -> State:
    state = State(sequence=read.sequence, skipped=read.skipped, naming=naming)
    for fingerprint in read.fingerprints:
        state.fingerprint(fingerprint)
    known: dict[str, str] = {}
    for instance, place in zip(read.instances, read.prints, strict=True):
        state.instances[instance.uuid] = _shared(
            state, known, instance, None if place is None else read.fingerprints[place]
        )
    for uuid in read.canonical:
        state.canonical[state.instances[uuid].key] = state.instances[uuid].uuid
    for uuid in read.served:
        state.served[state.instances[uuid].key] = state.instances[uuid].uuid
    for ref, generation in read.promoted.items():
        state.promoted[known.get(ref, ref)] = known.get(generation, generation)
    for want in read.wants:
        refs = tuple([known.get(each, each) for each in want.refs])
        state.wants[want.id] = replace(want, refs=refs, instances=_texts(state, want.instances), by=state.text(want.by))
        if not want.state.ended:
            for ref in refs:
                state.open.setdefault((ref, want.generation), {})[want.id] = None
    return state


def _shared(state: State, known: dict[str, str], instance: Instance, fingerprint: Mapping[str, str] | None) -> Instance:
    """The instance with the very texts that others have too: copies of them would take as much room as the rest."""
    previous = None if instance.previous is None else state.instances.get(instance.previous)
    return replace(
        instance,
        ref=known.setdefault(instance.ref, instance.ref),
        generation=known.setdefault(instance.generation, instance.generation),
        previous=instance.previous if previous is None else previous.uuid,
        fingerprint=fingerprint,
        revision=state.text(instance.revision),
        by=state.text(instance.by),
        inputs=_texts(state, instance.inputs),
    )


def _texts(state: State, uuids: tuple[str, ...]) -> tuple[str, ...]:
    if not uuids:
        return uuids
    found = [(state.instances.get(each), each) for each in uuids]
    return tuple([uuid if instance is None else instance.uuid for instance, uuid in found])
