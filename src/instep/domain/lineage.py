"""Lineage: the inputs of an instance, the instances made from it, and the old ones that may be forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from enum import StrEnum

from msgspec import Struct

from instep.domain.instances import Instance, InstanceState
from instep.domain.state import State


def history(state: State, ref: str, generation: str | None = None) -> list[Instance]:
    """The instances of a partition (of one generation, or of all), the newest first."""
    found = [
        each
        for each in state.instances.values()
        if each.ref == ref and (generation is None or each.generation == generation)
    ]
    return sorted(found, key=lambda each: each.sequence, reverse=True)


class Link(StrEnum):
    INPUT = "input"
    PREVIOUS = "previous"


class Node(Struct, frozen=True):
    """An instance in a graph and its state then; both None for one that was collected."""

    uuid: str
    instance: Instance | None
    state: InstanceState | None


class Edge(Struct, frozen=True):
    """`source` was made from `target`, or took its place."""

    source: str
    target: str
    link: Link


class Graph(Struct, frozen=True):
    """Nodes in order of their distance from the one that was asked for, which is the first."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def graph(state: State, uuid: str, at: int | None = None) -> Graph:
    """The graph of an instance's direct and indirect inputs; with the instance before each of them.

    As of a time, what was not yet there is left out: an instance has inputs from when its job began.
    """
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    pending = deque([(uuid, True)])
    while pending:
        uuid, whole = pending.popleft()
        if uuid in nodes:
            continue
        instance = state.instances.get(uuid)
        nodes[uuid] = Node(uuid, instance, _state_at(instance, at))
        if instance is None or not whole:
            continue
        for each in instance.inputs if at is None or at >= (instance.started_at or 0) else ():
            edges.append(Edge(uuid, each, Link.INPUT))
            pending.append((each, True))
        if instance.previous is not None:
            edges.append(Edge(uuid, instance.previous, Link.PREVIOUS))
            pending.append((instance.previous, False))
    return Graph(tuple(nodes.values()), tuple(edges))


def _state_at(instance: Instance | None, at: int | None) -> InstanceState | None:
    if instance is None:
        return None
    return instance.state if at is None else instance.state_at(at)


def made_from(state: State, uuid: str) -> list[Instance]:
    """Every instance that was made from this one, directly or not: what a taint of it throws doubt on."""
    users: dict[str, list[Instance]] = {}
    for instance in state.instances.values():
        for each in instance.inputs:
            users.setdefault(each, []).append(instance)
    found: dict[str, Instance] = {}
    pending = [uuid]
    while pending:
        for user in users.get(pending.pop(), ()):
            if user.uuid not in found:
                found[user.uuid] = user
                pending.append(user.uuid)
    return sorted(found.values(), key=lambda each: each.sequence)


def collectable(state: State, now: int, keep: int, in_use: Collection[str] = ()) -> list[str]:
    """Instances that may be forgotten: those left for longer than `keep` ms, the oldest first.

    Never one that is canonical or served, nor one in use: those in `in_use` (a running job's) and those that wait for
    an open want. Nor an end of a link of any that is kept for one of these reasons, or for its age: its inputs, their
    inputs and so on, and the instance before it. That one's own link back ends there, or nothing would ever go.
    """
    kept = {each.uuid for each in state.instances.values() if each.ended_at is None or now - each.ended_at < keep}
    kept.update(state.served.values())
    kept.update(in_use)
    for want in state.wants.values():
        if not want.state.ended:
            kept.update(want.blocks)
    kept |= set(_previous(state, kept))
    _add_inputs(state, kept)
    return [uuid for uuid in state.instances if uuid not in kept]


def _previous(state: State, uuids: Iterable[str]) -> list[str]:
    found = [state.instances.get(each) for each in uuids]
    return [each.previous for each in found if each is not None and each.previous is not None]


def _add_inputs(state: State, kept: set[str]) -> None:
    pending = list(kept)
    while pending:
        instance = state.instances.get(pending.pop())
        for each in instance.inputs if instance is not None else ():
            if each not in kept:
                kept.add(each)
                pending.append(each)


def collectable_wants(state: State, now: int, keep: int) -> list[str]:
    """Wants that have ended for longer than `keep` ms, the oldest first; not those that a kept one failed by."""
    old = [each for each in state.wants.values() if each.ended_at is not None and now - each.ended_at >= keep]
    gone = {each.id for each in old}
    needed = {up for each in state.wants.values() if each.id not in gone for up in each.upstream}
    return [each.id for each in old if each.id not in needed]
