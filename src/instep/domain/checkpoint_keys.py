"""Names of checkpoints, and how those of slices become one (ADR 014 of the seed on entity-level indexing).

    global.User                   an entity in the scope `global`
    global.User.p0of5             the first of five slices of its first run
    ns.100.MergeRequest           an entity in the namespace 100
    ns.42/9970.MergeRequest.p3of5 a slice of one in the namespace 42/9970

A namespace is written as everywhere, with slashes: so `ns.42.` is where the keys of exactly the namespace 42 begin, and
neither those of 420 nor those of 42/9970 do.

The checkpoint of the whole, the *parent*, is written when every slice of the count in force is complete, at the least
of their watermarks; the others are deleted after it. A crash between any two of these steps leaves what the same rule
finishes. Slices of another count are left over from a time when the first run was cut otherwise: they neither hold
anything up nor add anything. A key does not say which build it is of: checkpoints are kept, and listed, by instance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from instep.domain.refs import PartitionRef, RefError, Scope, is_entity_name
from instep.domain.windows import Complete, Progress, consolidated, later

_SLICE = re.compile(r"p(0|[1-9][0-9]*)of([1-9][0-9]*)\Z")


class CheckpointKeyError(ValueError):
    """A text that is not the key of a checkpoint, or a key that there cannot be."""


@dataclass(frozen=True, slots=True, order=True)
class CheckpointKey:
    """`index` of `count` slices; the parent has neither (`count` is 0)."""

    ref: PartitionRef
    index: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.index < max(self.count, 1):
            raise CheckpointKeyError(f"{self.ref} has no slice {self.index} of {self.count}")

    @property
    def parent(self) -> CheckpointKey:
        return CheckpointKey(self.ref)

    @property
    def is_parent(self) -> bool:
        return not self.count

    def slices(self, count: int) -> tuple[CheckpointKey, ...]:
        """The keys of all slices of this count."""
        return tuple(CheckpointKey(self.ref, index, count) for index in range(count))

    def __str__(self) -> str:
        scope = self.ref.scope
        whole = f"global.{self.ref.entity}" if scope.is_global else f"{namespace_prefix(scope)}{self.ref.entity}"
        return whole if self.is_parent else f"{whole}.p{self.index}of{self.count}"

    @classmethod
    def parse(cls, text: str) -> CheckpointKey:
        """Only what `str` gives is a key: `p00of5` or `ns.42/.User` would be second names of one checkpoint."""
        try:
            key = _parsed(text)
        except RefError:
            key = None
        if key is None or str(key) != text:
            raise CheckpointKeyError(
                f"{text!r} is not the key of a checkpoint: they are like global.User, ns.100.User and ns.100.User.p0of5"
            )
        return key


def _parsed(text: str) -> CheckpointKey | None:
    kind, *rest = text.split(".")
    scope = Scope()
    if kind == "ns" and rest:
        scope = Scope.parse(rest.pop(0))
    elif kind != "global":
        return None
    match rest:
        case [entity] if is_entity_name(entity):
            return CheckpointKey(PartitionRef(entity, scope))
        case [entity, part] if is_entity_name(entity) and (found := _SLICE.match(part)):
            return CheckpointKey(PartitionRef(entity, scope), int(found[1]), int(found[2]))
    return None


def namespace_prefix(scope: Scope) -> str:
    """What the keys of exactly this namespace begin with, and no others: for its deletion."""
    if scope.is_global:
        raise CheckpointKeyError("global is no namespace: it is not deleted as one")
    return f"ns.{scope}."


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not to be consolidated, and so not indexed yet: these slices are not complete."""

    unfinished: tuple[CheckpointKey, ...]


@dataclass(frozen=True, slots=True)
class WriteParent:
    key: CheckpointKey
    progress: Complete


@dataclass(frozen=True, slots=True)
class Delete:
    """By a tombstone, where rows cannot be removed."""

    key: CheckpointKey


Step: TypeAlias = WriteParent | Delete


@dataclass(frozen=True, slots=True)
class Consolidation:
    """What is left to do, in this order: the parent before any deletion. None is left when it is done."""

    steps: tuple[Step, ...]


def consolidation(
    parent: CheckpointKey, entries: Iterable[tuple[CheckpointKey, Progress]], count: int
) -> Waiting | Consolidation:
    """What is to be done about the checkpoints of one entity in one scope, of which `count` slices are in force.

    `entries` are those that are stored (not the deleted ones), in any order; those of other parents are ignored, and of
    several records of one key the one that `windows.later` says holds. A parent that is complete stays as it is: what
    slices are there beside it were read into it, or written by a worker that was taken over.
    """
    if not parent.is_parent or count < 1:
        raise CheckpointKeyError(f"{parent} is not consolidated from {count} slices")
    stored: dict[CheckpointKey, Progress] = {}
    for key, progress in entries:
        if key.parent == parent:
            stored[key] = later(stored[key], progress) if key in stored else progress
    deletions = tuple(Delete(key) for key in sorted(stored) if not key.is_parent)
    if isinstance(stored.get(parent), Complete):
        return Consolidation(deletions)
    watermarks: list[int] = []
    unfinished: list[CheckpointKey] = []
    for key in parent.slices(count):
        match stored.get(key):
            case Complete(watermark):
                watermarks.append(watermark)
            case _:
                unfinished.append(key)
    if unfinished:
        return Waiting(tuple(unfinished))
    return Consolidation((WriteParent(parent, consolidated(watermarks)), *deletions))
