"""References: names of entities, scopes, partitions, and their checkpoints.

Names of checkpoints (ADR 014 of the seed on entity-level indexing).

    global.User                   an entity in the scope `global`
    global.User.p0of5             the first of five slices of a run that has not ended
    ns.100.MergeRequest           an entity in the namespace 100
    ns.42/9970.MergeRequest.p3of5 a slice of one in the namespace 42/9970

A namespace is written as everywhere, with slashes: so `ns.42.` is where the keys of exactly the namespace 42 begin, and
neither those of 420 nor those of 42/9970 do. Slices belong to a job, and the checkpoint of the whole is written in the
transaction that ends it: those of another job, cut otherwise, neither hold it up nor add anything.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_ENTITY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}\Z")
_PATH = re.compile(r"[0-9]+(/[0-9]+)*/?\Z")
_NORMAL = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}@(global|[0-9]+(/[0-9]+)*)\Z")
_GENERATION = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")

#: Namespace of instance UUIDs; it never changes, because replaying the ledger must give the same ones.
INSTANCE_NAMESPACE = uuid.UUID("6f1c2b1e-6a55-5d2c-9c3e-1d8f5b0a7e42")
_NAMESPACE = INSTANCE_NAMESPACE.bytes
#: The first of the two bits that every UUID has in this digit are 10.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class RefError(ValueError):
    """A reference that is not of the form `Entity@scope`."""


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """`global`, or one namespace given by its traversal path, such as `42/9970/`."""

    path: str = ""

    @property
    def is_global(self) -> bool:
        """Whether it is the one scope that is no namespace."""
        return not self.path

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Read `global` or a path such as `42/9970`. Raises `RefError`."""
        if text == "global":
            return cls()
        if not _PATH.match(text):
            raise RefError(f"scope {text!r} is neither 'global' nor a traversal path such as 42/9970")
        return cls(text.rstrip("/") + "/")

    def within(self, namespace: Scope) -> bool:
        """Whether this is that namespace, or one in it. What is global is in none."""
        return not (self.is_global or namespace.is_global) and self.path.startswith(namespace.path)

    def __str__(self) -> str:
        return "global" if self.is_global else self.path.rstrip("/")

    @property
    def after(self) -> str:
        """Above all paths in this namespace, and not above any other: the character after `/` is `0`."""
        return self.path[:-1] + "0"


GLOBAL = Scope()


def nested(scopes: Iterable[Scope]) -> tuple[Scope, Scope] | None:
    """A namespace and one that lies in it, if there are such among these: their rows would be the same."""
    by_path = sorted({each for each in scopes if not each.is_global})
    # What lies in a namespace follows it at once.
    return next(((outer, inner) for outer, inner in pairwise(by_path) if inner.within(outer)), None)


def outside(scopes: Iterable[Scope]) -> list[tuple[str, str | None]]:
    """The paths that are in none of these namespaces, as ranges in order: from the first on, below the second (None: no
    end).
    """
    found: list[tuple[str, str | None]] = []
    start = ""
    for scope in sorted(scopes):
        if start < scope.path:
            found.append((start, scope.path))
        start = max(start, scope.after)
    return [*found, (start, None)]


@dataclass(frozen=True, slots=True, order=True)
class PartitionRef:
    """A reference to one entity in one scope, written `Document@global` or `MergeRequest@42/9970`."""

    entity: str
    scope: Scope = GLOBAL

    @classmethod
    def parse(cls, text: str) -> PartitionRef:
        """Read a reference such as `Entity@global`. Raises `RefError`."""
        entity, _, scope = text.partition("@")
        if not is_entity_name(entity):
            raise RefError(f"{text!r} is not a reference: write Entity@global or Entity@42/9970")
        return cls(entity, Scope.parse(scope or "global"))

    @property
    def label(self) -> str:
        """The reference for display: `Document` for `Document@global`, as projects without namespaces need no scope."""
        return self.entity if self.scope.is_global else str(self)

    def __hash__(self) -> int:
        return hash((self.entity, self.scope.path))  # Without asking the scope: these are keys everywhere.

    def __str__(self) -> str:
        return f"{self.entity}@{self.scope}"


def is_entity_name(name: str) -> bool:
    """Letters, digits and underscores, starting with a letter, at most 100 characters."""
    return bool(_ENTITY.match(name))


def entity_in(name: str, target: str) -> str:
    """The name of an entity with several targets in one of them: `Document__pg`."""
    return f"{name}__{target}"


def own_name(entity: str) -> str:
    """The declared name: `Document` for `Document__pg`."""
    return entity.partition("__")[0]


def is_own_name(name: str) -> bool:
    """Whether an entity may be declared under this name: no target, and no physical index, can be taken for its own."""
    return is_entity_name(name) and "__" not in name and not name.endswith("_")


def is_normal(ref: str) -> bool:
    """Whether this is how the partition that it names is written in the ledger."""
    return bool(_NORMAL.match(ref))


def is_generation_name(name: str) -> bool:
    """Letters, digits, '.', '_' and '-', starting with a letter or a digit, at most 64 characters, and no two dots in a
    row: it becomes part of names of files. The unnamed generation has the empty name.
    """
    return not name or bool(_GENERATION.match(name))


def generation_text(ref: object, generation: str) -> str:
    """A partition's generation for people: `Document`, `Document (v2)`."""
    return f"{ref} ({generation})" if generation else str(ref)


def instance_id(ref: PartitionRef, sequence: int) -> uuid.UUID:
    """UUIDv5 of the partition and its build number, so that a replay gives the same one."""
    return uuid.uuid5(INSTANCE_NAMESPACE, f"{ref}#{sequence}")


def index_name(alias: str, ledger: str, made: str) -> str:
    """The physical index that a ledger keeps for an alias: of an instance, or of whatever this digest is of."""
    ours = f"{_short(ledger)}_" if ledger else ""
    return f"{alias}__{ours}{_short(made)}"


def _short(id: str) -> str:
    return id.replace("-", "")[:8]


class Naming(NamedTuple):
    """The naming of instances in a ledger: by its own id those that are made by events after `since`; those before were
    made when ledgers had none, and keep their names.
    """

    ledger: str = ""
    since: int = 0


#: Of a ledger without an id.
UNNAMED = Naming()


def event_instance_id(ref: str, generation: str, sequence: int, naming: Naming = UNNAMED) -> str:
    """UUIDv5 of the ledger, the partition, its generation and the event that makes the instance, as text: a replay of
    one ledger gives the same one, another ledger another.

    Its names differ from those of `instance_id`: an instance made before there was an event log never has the id of
    one made by the event of the same number.
    """
    name = f"{ref}+{generation}#event:{sequence}" if generation else f"{ref}#event:{sequence}"
    if sequence > naming.since and naming.ledger:
        name = f"{naming.ledger}/{name}"
    # What str(uuid.uuid5(INSTANCE_NAMESPACE, name)) gives, at a third of its time: a replay makes very many.
    text = hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"


class CheckpointKeyError(ValueError):
    """An invalid checkpoint key."""


@dataclass(frozen=True, slots=True, order=True)
class CheckpointKey:
    """`index` of `count` slices; the whole has neither (`count` is 0)."""

    ref: PartitionRef
    index: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.index < max(self.count, 1):
            raise CheckpointKeyError(f"{self.ref} has no slice {self.index} of {self.count}")

    def __str__(self) -> str:
        scope = self.ref.scope
        where = "global" if scope.is_global else f"ns.{scope}"
        whole = f"{where}.{self.ref.entity}"
        return f"{whole}.p{self.index}of{self.count}" if self.count else whole
