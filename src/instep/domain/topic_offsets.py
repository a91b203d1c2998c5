"""The part of a topic that runs have read: the next offset of each partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from instep.domain.storable import pack, unpack


class Gap(NamedTuple):
    """Offsets of a partition that were not read and are not there any more: from the first to before the last."""

    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """The next offset of each partition of a topic. `topic` is its id: one that was made again has another."""

    topic: str
    next: Mapping[int, int]

    def encode(self) -> bytes:
        return pack([self.topic, sorted(self.next.items())])

    @classmethod
    def decode(cls, data: bytes) -> Offsets:
        topic, found = unpack(data)
        return cls(topic, {int(partition): int(offset) for partition, offset in found})

    def waiting(self, since: Offsets | None) -> int:
        """The number of offsets up to these."""
        before: Mapping[int, Any] = since.next if since else {}
        return sum(max(0, offset - before.get(partition, 0)) for partition, offset in self.next.items())

    def up_to(self, until: Offsets, start: Offsets) -> Offsets:
        """These, or as far as `until` goes, if that is less. Of partitions that it does not have, nothing: they end at
        the start.
        """
        ends = {each: max(start.next[each], min(offset, until.next.get(each, 0))) for each, offset in self.next.items()}
        return Offsets(self.topic, ends)

    def within(self, start: Offsets, most: int) -> Offsets:
        """These, or earlier ones with about so many messages since the start: of each partition the same share."""
        number = self.waiting(start)
        if number <= most:
            return self
        ends = {
            partition: (first := start.next[partition]) + -(-(offset - first) * most // number)
            for partition, offset in self.next.items()
        }
        return Offsets(self.topic, ends)

    def begun(self, since: Offsets | None, first: Mapping[int, int]) -> Offsets:
        """The offsets to read from, if `first` are the first that are there: a partition that was added begins
        there.
        """
        before: Mapping[int, int] = since.next if since else {}
        return Offsets(self.topic, {each: max(before.get(each, 0), first.get(each, 0)) for each in self.next})

    def gaps(self, since: Offsets, first: Mapping[int, int]) -> list[Gap]:
        """Offsets that were deleted before they were read. A partition that ends before the offset that comes next
        has lost some.
        """
        found = []
        for partition, offset in sorted(since.next.items()):
            if self.next.get(partition, -1) < offset:
                found.append(Gap(partition, max(0, self.next.get(partition, 0)), offset))
            elif first.get(partition, 0) > offset:
                found.append(Gap(partition, offset, first[partition]))
        return found
