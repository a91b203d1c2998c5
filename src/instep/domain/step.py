"""One event being applied: the checks that its handler makes, the changes, and what follows from these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.refs import PartitionRef, RefError, event_instance_id
from instep.domain.state import Canonical, Change, Key, Rejected, State
from instep.domain.wants import Want, WantState, state_of

_SUCCESSFUL = WantState.SUCCESSFUL
_MISSING, _FAILED = InstanceState.MISSING, InstanceState.FAILED
_GENERATION = re.compile(r"[A-Za-z0-9._-]{0,100}\Z")


@lru_cache(maxsize=65536)
def _malformed(ref: str) -> bool:
    try:
        return str(PartitionRef.parse(ref)) != ref
    except RefError:
        return True


class Step:
    """One event being applied, or one after the other. Handlers check first and change afterwards: nothing is ever
    half applied.
    """

    __slots__ = ("at", "canonical", "changes", "ended", "instances", "open", "sequence", "state", "touched", "wants")

    def __init__(self, state: State) -> None:
        self.state = state
        self.instances = state.instances
        self.canonical = state.canonical
        self.open = state.open
        self.wants = state.wants
        self.sequence = 0
        self.at = 0
        self.changes: list[Change] = []
        #: What wants have to look at again, and wants that have ended whose dependents do not know yet.
        self.touched: list[Key] = []
        self.ended: list[Want] = []

    # Checks.

    def current(self, uuid: str, needed: InstanceState) -> Instance | Rejected:
        """The instance, if it is canonical and in this state."""
        instance = self.instances.get(uuid)
        if instance is None:
            return Rejected("unknown-instance", f"no instance {uuid} is known")
        if instance.ended_at is not None:
            return Rejected("left", f"instance {uuid} of {instance.ref} was left, it never changes again")
        if instance.state is not needed:
            return Rejected("not-allowed", f"{instance.ref} is {instance.state}, and would have to be {needed}")
        return instance

    def naming(self, refs: Iterable[str], generation: str) -> Rejected | None:
        for ref in refs:
            if (ref, generation) not in self.canonical and _malformed(ref):
                return Rejected("malformed", f"{ref!r} is not the normal form of a reference")
        if generation and not _GENERATION.match(generation):
            return Rejected("malformed", f"{generation!r} is not the name of a generation")
        return None

    def links(self, inputs: tuple[str, ...], uuid: str) -> Rejected | None:
        for each in inputs:
            if each not in self.instances:
                return Rejected("unknown-instance", f"input {each} is not known")
            if each == uuid:
                return Rejected("cycle", f"instance {each} cannot be made from itself")
        return None

    # Changes.

    def store(self, instance: Instance) -> None:
        self.instances[instance.uuid] = instance
        self.changes.append(instance)
        key = (instance.ref, instance.generation)
        if key in self.open and key not in self.touched:
            self.touched.append(key)

    def store_want(self, want: Want) -> None:
        self.wants[want.id] = want
        self.changes.append(want)

    def succeed(self, old: Instance | None, ref: str, generation: str, reason: Reason, by: str = "") -> None:
        """The next instance of this partition's generation is made, and the canonical one from now on."""
        uuid = event_instance_id(ref, generation, self.sequence)
        previous = None
        if old is not None:
            # The same text as before, and not another that is equal.
            ref, generation, previous = old.ref, old.generation, old.uuid
        instance = Instance(
            uuid,
            ref,
            generation,
            self.sequence,
            previous,
            reason,
            InstanceState.MISSING,
            self.at,
            by=self.state.share(by, by),
        )
        self.point(instance)

    def point(self, instance: Instance) -> None:
        self.canonical[instance.ref, instance.generation] = instance.uuid
        self.changes.append(Canonical(instance.ref, instance.generation, instance.uuid))
        self.store(instance)

    def leave(self, old: Instance, state: InstanceState, reason: Reason, why: str, by: str = "") -> None:
        error = why if state is _FAILED else old.error
        self.store(replace(old, state=state, ended_at=self.at, why=why, error=error, waits=()))
        self.succeed(old, old.ref, old.generation, reason, by)

    def begin(self, id: str, refs: tuple[str, ...], generation: str, needed: int | None, **values: Any) -> None:
        """A new want: among those that wait, unless it does not have to."""
        current = self._current(refs, generation)
        state, waits = state_of(needed, current)
        if state is _SUCCESSFUL:
            values |= {"ended_at": self.at, "instances": _uuids(current)}
        want = Want(id, refs, generation, state, self.at, needed, upstream=waits, **values)
        if state is _SUCCESSFUL:
            self._close(want)
            return
        self.store_want(want)
        for ref in refs:
            waiting = self.open.get((ref, generation))
            if waiting is None:
                self.open[ref, generation] = {id: None}
            else:
                waiting[id] = None

    def end(self, want: Want, state: WantState, **values: Any) -> None:
        for ref in want.refs:
            key = (ref, want.generation)
            waiting = self.open[key]
            del waiting[want.id]
            if not waiting:
                del self.open[key]
        self._close(replace(want, state=state, ended_at=self.at, **values))

    def _close(self, ended: Want) -> None:
        self.store_want(ended)
        if ended.blocks:
            self.ended.append(ended)

    def fail(self, instance: Instance, state: WantState, error: str, upstream: tuple[str, ...] = ()) -> None:
        """Wants that wait for this instance fail with it."""
        for want in self.state.open_wants(instance.ref, instance.generation):
            if not want.satisfied_by(instance):
                self.end(want, state, error=error, upstream=upstream)

    # What follows.

    def settle(self) -> None:
        """Wants follow what was touched, and what waits for wants that ended follows these, until all is quiet. It
        comes to an end: each want ends once, and only that changes instances here.
        """
        while self.ended or self.touched:
            if self.ended:
                self._released(self.ended.pop())
            else:
                self._followed(self.touched.pop())

    def _followed(self, key: Key) -> None:
        only = [self.instances[self.canonical[key]]]
        for id in tuple(self.open.get(key, ())):
            want = self.wants[id]
            self._decide(want, only if len(want.refs) == 1 else self._current(want.refs, want.generation))

    def _decide(self, want: Want, current: Sequence[Instance | None]) -> None:
        now, waits = state_of(want.needed, current)
        if now is _SUCCESSFUL:
            self.end(want, now, upstream=(), instances=_uuids(current))
        elif now is not want.state or waits != want.upstream:
            self.store_want(replace(want, state=now, upstream=waits))

    def _current(self, refs: tuple[str, ...], generation: str) -> list[Instance | None]:
        found = []
        for ref in refs:
            uuid = self.canonical.get((ref, generation))
            found.append(None if uuid is None else self.instances[uuid])
        return found

    def _released(self, want: Want) -> None:
        """A derivative want has ended: who waited for it goes on, or fails with it."""
        for uuid in want.blocks:
            instance = self.instances.get(uuid)
            if instance is None or want.id not in instance.waits:
                continue
            instance = replace(instance, waits=tuple(each for each in instance.waits if each != want.id))
            self.store(instance)
            if want.state is not _SUCCESSFUL:
                self._upstream_failed(instance, want)

    def _upstream_failed(self, instance: Instance, upstream: Want) -> None:
        error = f"{instance.ref} needs {', '.join(upstream.refs)}: {upstream.error}"
        self.fail(instance, WantState.UPSTREAM_FAILED, error, (upstream.id,))
        if instance.state is InstanceState.BUILDING:
            self.leave(instance, InstanceState.FAILED, Reason.FAILURE, error)
        elif instance.state is InstanceState.REFRESHING:
            self.store(replace(instance, state=InstanceState.LIVE, error=error, waits=()))


def _uuids(instances: Iterable[Instance | None]) -> tuple[str, ...]:
    return tuple([each.uuid for each in instances if each is not None])
