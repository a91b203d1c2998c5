"""Concurrency groups: how many partitions workers have in work at once, on all servers together."""

from __future__ import annotations

from dataclasses import dataclass

from instep.domain.refs import PartitionRef
from instep.domain.requests import Kind


@dataclass(frozen=True, slots=True)
class Group:
    """At most `limit` partitions of these kinds of scope are in work, that is, leased."""

    name: str
    limit: int
    kinds: frozenset[Kind]

    def has(self, ref: PartitionRef) -> bool:
        return Kind.of(ref.scope) in self.kinds
