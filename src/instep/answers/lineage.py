"""Lineage of instances, and what was canonical at some time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from pydantic import Field

from instep.answers.answer import HIDDEN, Answer
from instep.answers.instances import Instance, instance_answer
from instep.domain import instances
from instep.domain.instances import InstanceState
from instep.domain.jobs import Job
from instep.domain.lineage import Link, graph, made_from
from instep.domain.refs import PartitionRef, RefError, own_name
from instep.domain.state import State
from instep.domain.texts import unknown_name
from instep.errors import Missing, UserError
from instep.ledger.ledger import Ledger

#: An instance may be named by its UUID or the beginning of it, of at least so many characters.
_UUID = re.compile(r"[0-9a-f]{4,8}\Z|[0-9a-f]{8}-[0-9a-f-]*\Z")


class Node(Answer):
    """An instance in a lineage. `instance` is null if it was forgotten."""

    uuid: str
    instance: Instance | None
    #: Its state at that time.
    state: InstanceState | None = HIDDEN


class Edge(Answer):
    from_: str = Field(serialization_alias="from")
    to: str
    link: Link


class Lineage(Answer):
    """The inputs of an instance, direct and indirect, and its `users`: the instances made from it."""

    at: int | None
    instance: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    users: tuple[Instance, ...]


def lineage(ledger: Ledger, wanted: str, *, at: int | None = None) -> Lineage:
    """The lineage of the canonical instance of a partition, or of an instance by its UUID; as it was known at a
    time.
    """
    state = ledger.events.state(at=at)
    instance = _instance(state, wanted, past=at is not None)
    found = graph(state, instance.uuid)
    return Lineage(
        at=at,
        instance=instance.uuid,
        nodes=tuple(Node(uuid=each.uuid, instance=_answer(each.instance), state=each.state) for each in found.nodes),
        edges=tuple(Edge(from_=each.source, to=each.target, link=each.link) for each in found.edges),
        users=tuple(map(instance_answer, made_from(state, instance.uuid))),
    )


def _answer(instance: instances.Instance | None) -> Instance | None:
    return instance_answer(instance) if instance else None


def _instance(state: State, wanted: str, *, past: bool) -> instances.Instance:
    """The named instance. The name of a known partition is never taken for the beginning of a UUID."""
    try:
        ref = str(PartitionRef.parse(wanted))
    except RefError as error:
        if not _UUID.match(wanted):
            raise Missing(str(error), hint="Or give the UUID of an instance; see `instep history`.") from error
        ref = None
    if ref is not None:
        canonical = state.current(ref, state.promoted.get(ref, "")) or state.reading(ref)
        if canonical is not None:
            return canonical
    if _UUID.match(wanted):
        found = [each for uuid, each in state.instances.items() if uuid.startswith(wanted)]
        if len(found) > 1:
            raise UserError(f"{len(found)} instances begin with {wanted!r}", hint="Give more of the UUID.")
        if found:
            return found[0]
    raise _unknown(state, ref, wanted, past=past)


def _unknown(state: State, ref: str | None, wanted: str, *, past: bool) -> UserError:
    then = " then" if past else ""
    known = sorted({each for each, _ in state.canonical})
    if not known:
        hint = f"Nothing {'was known then' if past else 'has been built yet'}; `instep run` builds it."
    elif ref is None:
        hint = "`instep history REF` lists those of a partition."
    else:
        hint = f"Known{then}: {', '.join(known[:10])}."
    what = f"no instance begins with {wanted!r}" if ref is None else f"no instance of {ref} is known"
    return Missing(f"{what}{' at that time' if past else ''}", hint=hint)


class Moment(Answer):
    """The canonical instance of a partition's generation at a time, its state, and the instance that was served.
    `promoted`: readers that named no generation got this one.
    """

    ref: str
    generation: str
    at: int
    instance: Instance | None
    served: Instance | None
    open_wants: int
    promoted: bool


def moments(
    ledger: Ledger, declared: Iterable[str], *, at: int, entities: Collection[str] | None = None
) -> list[Moment]:
    """All partitions that are declared today or were known then, or only those of some entities."""
    state = ledger.events.state(at=at)
    places = {f"{each}@global": place for place, each in enumerate(declared)}
    new = [(ref, "") for ref in places if not state.generations(ref)]
    known = sorted([*new, *state.canonical], key=lambda key: (places.get(key[0], len(places)), key))
    partitions = [(PartitionRef.parse(ref), generation) for ref, generation in known]
    names = dict.fromkeys(name for ref, _ in partitions for name in (own_name(ref.entity), ref.entity))
    for each in entities or ():
        if each not in names:
            what, hint = unknown_name("entity", each, list(names))
            raise UserError(what, hint=hint)
    return [
        _moment(state, str(ref), generation, at)
        for ref, generation in partitions
        if not entities or not {ref.entity, own_name(ref.entity)}.isdisjoint(entities)
    ]


def _moment(state: State, ref: str, generation: str, at: int) -> Moment:
    return Moment(
        ref=ref,
        generation=generation,
        at=at,
        instance=_answer(state.current(ref, generation)),
        served=_answer(state.reading(ref, generation)),
        open_wants=len(state.open_wants(ref, generation)),
        promoted=state.promoted.get(ref) == generation,
    )


def end_of(job: Job, now: int) -> int:
    """The time that a job is looked back at: its end, or now while it has none."""
    return now if job.finished_at is None else job.finished_at
