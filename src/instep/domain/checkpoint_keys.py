"""Names of checkpoints (ADR 014 of the seed on entity-level indexing).

    global.User                   an entity in the scope `global`
    global.User.p0of5             the first of five slices of a run that has not ended
    ns.100.MergeRequest           an entity in the namespace 100
    ns.42/9970.MergeRequest.p3of5 a slice of one in the namespace 42/9970

A namespace is written as everywhere, with slashes: so `ns.42.` is where the keys of exactly the namespace 42 begin, and
neither those of 420 nor those of 42/9970 do. Slices belong to a job, and the checkpoint of the whole is written in the
transaction that ends it: those of another job, cut otherwise, neither hold it up nor add anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.domain.refs import PartitionRef


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
