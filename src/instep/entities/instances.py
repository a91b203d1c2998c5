"""Instances for users: their history, and the changes of the canonical one: taint, rebuild, expire.

After each change, readers keep the served index until a better one is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from instep.domain.events import Event, InstanceCreated, InstanceExpired, InstanceTainted
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.refs import PartitionRef, generation_text
from instep.entities.generations import build_hint, waiting_wants
from instep.errors import Conflict, UserError
from instep.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Left:
    """Result of a change: `old` was left, `new` is to be built. Both may be None or the same if nothing had to be done.
    `wanted`: an open want exists, so a worker builds it too.
    """

    ref: PartitionRef
    generation: str
    old: Instance | None
    new: Instance | None
    wanted: bool

    @property
    def changed(self) -> bool:
        return self.old != self.new


def taint(ledger: Ledger, ref: PartitionRef, generation: str = "", *, why: str = "", by: str = "") -> Left:
    """Taint the Live instance, so that it is built again. Raises `UserError` when none is Live."""
    old = live(ledger, ref, generation, "tainted")
    return _leave(ledger, ref, old, InstanceTainted(instance=old.uuid, why=why, by=by), "tainted")


def rebuild(ledger: Ledger, ref: PartitionRef, generation: str = "", *, by: str = "") -> Left:
    """Have the instance built again though it is sound; one that is to be built anyway stays as it is."""
    old = to_rebuild(ledger, ref, generation)
    if old is None or old.state is InstanceState.MISSING:
        return Left(ref, generation, old, old, _wanted(ledger, ref, generation))
    event = InstanceCreated(ref=str(ref), reason=Reason.REBUILD, generation=generation, by=by)
    return _leave(ledger, ref, old, event, "built again")


def expire(ledger: Ledger, ref: PartitionRef, generation: str = "", *, by: str = "") -> Left:
    """Expire the instance before its time to live ends. Raises `UserError` when none is Live."""
    old = live(ledger, ref, generation, "expired")
    return _leave(ledger, ref, old, InstanceExpired(instance=old.uuid, by=by), "expired")


def expire_overdue(ledger: Ledger, ttls: Mapping[PartitionRef, int], *, by: str = "") -> list[Left]:
    """Expire instances older than their time to live (ms). One that a job refreshes is left for the next time."""
    done = []
    for ref, old in overdue(ledger, ttls).items():
        event = InstanceExpired(instance=old.uuid, ttl=ttls[ref], by=by)
        done.append(_leave(ledger, ref, old, event, "expired"))
    return done


def overdue(ledger: Ledger, ttls: Mapping[PartitionRef, int]) -> dict[PartitionRef, Instance]:
    """Live instances older than their time to live, of the promoted generations."""
    now = ledger.present()
    found = (
        (ref, ttl, ledger.instances.canonical(ref, ledger.partitions.promoted(ref) or "")) for ref, ttl in ttls.items()
    )
    return {
        ref: each
        for ref, ttl, each in found
        if each is not None and each.state is InstanceState.LIVE and past_ttl(each, ttl, now)
    }


def past_ttl(instance: Instance, ttl: int | None, now: int) -> bool:
    """Whether it was built more than `ttl` ago: refreshes do not make an instance younger."""
    return ttl is not None and instance.live_at is not None and now - instance.live_at >= ttl


def live(ledger: Ledger, ref: PartitionRef, generation: str, what: str) -> Instance:
    """The canonical instance, which must be Live to be `what` (`tainted`, for example). Else raises `UserError`."""
    current = ledger.instances.canonical(ref, generation)
    if current is None and generation:
        raise UserError(f"{generation_text(ref, generation)} is not there", hint=build_hint(ledger, ref, generation))
    if current is None or current.state is InstanceState.MISSING:
        again = " --retry-failures" if current and current.reason is Reason.FAILURE else ""
        raise UserError(
            f"{generation_text(ref, generation)} has no Live instance that could be {what}",
            hint=f"It waits to be built: the next `instep run{again}` does that.",
        )
    if current.state is not InstanceState.LIVE:
        raise _in_work(ref, current, what)
    return current


def to_rebuild(ledger: Ledger, ref: PartitionRef, generation: str) -> Instance | None:
    """The canonical instance. Raises `UserError` while a job works on it."""
    current = ledger.instances.canonical(ref, generation)
    if current is not None and current.worked_on_by:
        raise _in_work(ref, current, "built again")
    return current


_ENDINGS = {
    InstanceState.TAINTED: "tainted",
    InstanceState.EXPIRED: "expired",
    InstanceState.FAILED: "its build failed",
}


def ending(each: Instance) -> str | None:
    """The end of an instance, as text; None for the canonical one."""
    if not each.left:
        return None
    words = _ENDINGS.get(each.state)
    if words is None:  # It was Live, and a new build replaced it.
        return f"replaced for a {each.why}" if each.why == Reason.REBUILD else f"replaced: {each.why}"
    return f"{words}: {each.why}" if each.why else words


def _leave(ledger: Ledger, ref: PartitionRef, old: Instance, event: Event, what: str) -> Left:
    try:
        ledger.events.append([event])
    except Conflict as error:  # A job has started with it, or another process was faster.
        raise UserError(
            f"{generation_text(ref, old.generation)} cannot be {what} now: {error}", hint=f"See `instep history {ref}`."
        ) from error
    generation = old.generation
    new = ledger.instances.canonical(ref, generation)
    return Left(ref, generation, ledger.instances.get(old.uuid), new, _wanted(ledger, ref, generation))


def _wanted(ledger: Ledger, ref: PartitionRef, generation: str) -> bool:
    """Whether a worker starts a job for it."""
    now = ledger.now()
    return any(each.can_begin(now) for each in waiting_wants(ledger, ref, generation))


def _in_work(ref: PartitionRef, current: Instance, what: str) -> UserError:
    does = "builds" if current.state is InstanceState.BUILDING else "refreshes"
    job = str(current.worked_on_by)[:8]
    return UserError(
        f"{generation_text(ref, current.generation)} cannot be {what} now: job {job} {does} it",
        hint=f"When that has ended, it can: `instep job show {job}`; `instep run` finishes a job that was stopped.",
    )
