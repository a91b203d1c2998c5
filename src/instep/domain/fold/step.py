"""A step of the fold: the checks that rules share, the changes, and their consequences."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.refs import event_instance_id, is_generation_name, is_normal
from instep.domain.state import Canonical, Change, Key, Rejected, State
from instep.domain.wants import Want, WantState, state_of

# Asking an enumeration for a member takes longer than all that is done with it here.
_MISSING, _BUILDING, _LIVE = InstanceState.MISSING, InstanceState.BUILDING, InstanceState.LIVE
_REFRESHING, _FAILED = InstanceState.REFRESHING, InstanceState.FAILED
_SUCCESSFUL = WantState.SUCCESSFUL
_uuid = attrgetter("uuid")


class Refused(Exception):
    """The event is not possible now."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.rejected = Rejected(name, reason)


def others(instance: Instance, job: str) -> Refused:
    """Another job works on the instance."""
    return Refused("other-job", f"{instance.ref} is in work by job {instance.worked_on_by}, not {job}")


class Step:
    """One event being applied, or one after the other. Rules check first and change afterwards: nothing is ever half
    applied.
    """

    __slots__ = ("at", "canonical", "changes", "ended", "instances", "open", "sequence", "state", "touched", "wants")

    def __init__(self, state: State, changes: list[Change] | deque[Change]) -> None:
        self.state = state
        self.instances = state.instances
        self.canonical = state.canonical
        self.open = state.open
        self.wants = state.wants
        self.sequence = 0
        self.at = 0
        self.changes = changes
        #: What wants have to look at again, and wants that have ended whose dependents do not know yet.
        self.touched: list[Key] = []
        self.ended: list[Want] = []

    # Checks.

    def current(self, uuid: str, needed: InstanceState) -> Instance:
        """The instance, if it is canonical and in this state."""
        instance = self.instances.get(uuid)
        if instance is None:
            raise Refused("unknown-instance", f"no instance {uuid} is known")
        if instance.ended_at is not None:
            raise Refused("left", f"instance {uuid} of {instance.ref} was left, it never changes again")
        if instance.state is not needed:
            raise Refused("not-allowed", f"{instance.ref} is {instance.state}, and would have to be {needed}")
        return instance

    def named(self, ref: str, generation: str) -> Instance | None:
        """The canonical instance of a partition's generation. Where there is none, the names have to be normal."""
        uuid = self.canonical.get((ref, generation))
        if uuid is not None:
            return self.instances[uuid]
        if not is_normal(ref):
            raise Refused("malformed", f"{ref!r} is not the normal form of a reference")
        if generation and not is_generation_name(generation):
            raise Refused("malformed", f"{generation!r} is not the name of a generation")
        return None

    def wanted(self, id: str, refs: tuple[str, ...]) -> tuple[str, ...]:
        """The references of a new want, each once."""
        if id in self.wants:
            raise Refused("taken", f"there is a want {id} already")
        if not refs:
            raise Refused("malformed", f"want {id} names no partition")
        return refs if len(refs) == 1 else tuple(dict.fromkeys(refs))

    # Changes.

    def store(self, instance: Instance) -> None:
        self.instances[instance.uuid] = instance
        self.changes.append(instance)
        key = (instance.ref, instance.generation)
        if key in self.open and key not in self.touched:
            self.touched.append(key)

    def succeed(self, old: Instance | None, ref: str, generation: str, reason: Reason, by: str = "") -> None:
        """The next instance of this partition's generation is made, and the canonical one from now on."""
        uuid = event_instance_id(ref, generation, self.sequence, self.state.naming)
        previous = None
        if old is not None:
            # The same text as before, and not another that is equal.
            ref, generation, previous = old.ref, old.generation, old.uuid
        by = self.state.text(by)
        self.point(Instance(uuid, ref, generation, self.sequence, previous, reason, _MISSING, self.at, by))

    def point(self, instance: Instance) -> None:
        self.canonical[instance.ref, instance.generation] = instance.uuid
        self.changes.append(Canonical(instance.ref, instance.generation, instance.uuid))
        self.store(instance)

    def leave(self, old: Instance, state: InstanceState, reason: Reason, why: str, by: str = "") -> None:
        error = why if state is _FAILED else old.error
        self.store(replace(old, state=state, ended_at=self.at, why=why, error=error, waits=()))
        self.succeed(old, old.ref, old.generation, reason, by)

    def fail(self, instance: Instance, state: WantState, error: str, upstream: tuple[str, ...] = ()) -> None:
        """An attempt of the wants that wait for this instance fails with it."""
        for want in self.state.open_wants(instance.ref, instance.generation):
            if not (want.satisfied_by(instance) or want.rests(self.at)):
                self.attempted(want.failed(state, self.at, error, upstream))

    def attempted(self, want: Want) -> None:
        """A want after a failed attempt: it waits for the next one, or has ended."""
        if want.ended_at is not None:
            self.end(want)
        else:
            self._change(want)

    def begin(self, want: Want, current: Sequence[Instance | None]) -> None:
        """A new want, and the canonical instances of its refs: it is among those that wait, unless it need not."""
        state, waits = state_of(want.needed, current)
        if state is _SUCCESSFUL:
            self._close(replace(want, state=state, ended_at=self.at, instances=tuple(map(_uuid, current))))
            return
        self._change(want if state is want.state else replace(want, state=state, upstream=waits))
        for ref in want.refs:
            self.open.setdefault((ref, want.generation), {})[want.id] = None

    def end(self, want: Want) -> None:
        """A want in its last state: it is not among those that wait any more."""
        for ref in want.refs:
            key = (ref, want.generation)
            waiting = self.open[key]
            del waiting[want.id]
            if not waiting:
                del self.open[key]
        self._close(want)

    def answer(self, letter: Want) -> None:
        """A dead letter that was canceled: it had ended before."""
        self._change(letter)

    def _close(self, want: Want) -> None:
        self._change(want)
        if want.blocks:
            self.ended.append(want)

    def _change(self, want: Want) -> None:
        self.wants[want.id] = want
        self.changes.append(want)

    # Consequences.

    def propagate(self) -> None:
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
            self._decide(want, only if len(want.refs) == 1 else self._current(want))

    def _decide(self, want: Want, current: Sequence[Instance | None]) -> None:
        now, waits = state_of(want.needed, current)
        if now is _SUCCESSFUL:
            uuids = tuple(map(_uuid, current))
            self.end(replace(want, state=now, ended_at=self.at, upstream=(), instances=uuids, error=None))
        elif now is not want.state or waits != want.upstream:
            self._change(replace(want, state=now, upstream=waits))

    def _current(self, want: Want) -> list[Instance | None]:
        return [self.state.current(ref, want.generation) for ref in want.refs]

    def _released(self, want: Want) -> None:
        """End a derivative want: wants that waited for it continue, or fail with it."""
        for uuid in want.blocks:
            instance = self.instances.get(uuid)
            if instance is None or want.id not in instance.waits:
                continue
            instance = replace(instance, waits=tuple(each for each in instance.waits if each != want.id))
            if want.state is _SUCCESSFUL:
                # What it waited for is what it is made from.
                inputs = tuple(dict.fromkeys((*instance.inputs, *want.instances)))
                self.store(replace(instance, inputs=inputs))
            else:
                self.store(instance)
                self._upstream_failed(instance, want)

    def _upstream_failed(self, instance: Instance, upstream: Want) -> None:
        canceled = upstream.state is WantState.CANCELED
        how = f"and that wait was {upstream.error}" if canceled else f"which failed: {upstream.error}"
        error = f"{instance.ref} waits for {', '.join(upstream.refs)}, {how}"
        self.fail(instance, WantState.UPSTREAM_FAILED, error, (upstream.id,))
        if instance.state is _BUILDING:
            self.leave(instance, _FAILED, Reason.FAILURE, error)
        elif instance.state is _REFRESHING:
            self.store(replace(instance, state=_LIVE, error=error, waits=()))


#: What one kind of event does to the state, or that it cannot: by raising `Refused`, before anything has changed.
Rule = Callable[[Step, Any], None]
