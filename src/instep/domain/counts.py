"""Counts: effects on source units, never attempts. All of Instep counts this way."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import add, attrgetter
from typing import Any


@dataclass(frozen=True, slots=True)
class Counts:
    """Outcomes of the units read (documents of a document entity, rows of a table).

    `read = written + skipped + deleted + failed` holds for slices, entities and jobs. The remaining fields count rows
    in the target (chunks).
    """

    read: int = 0
    written: int = 0
    skipped: int = 0
    deleted: int = 0
    failed: int = 0
    rows_written: int = 0
    rows_kept: int = 0
    rows_deleted: int = 0
    embedded: int = 0
    bytes_read: int = 0

    @property
    def balanced(self) -> bool:
        """Whether each document that was read has one outcome."""
        return self.read == self.written + self.skipped + self.deleted + self.failed

    @property
    def all_failed(self) -> bool:
        """Whether nothing was achieved of what was read."""
        return self.read > 0 and self.failed == self.read

    def __str__(self) -> str:
        """The counts for people: `3 written, 1 deleted`."""
        kinds = ("written", "deleted", "skipped", "failed")
        return ", ".join(f"{getattr(self, each):,} {each}" for each in kinds if getattr(self, each)) or "nothing to do"

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, _values(self), _values(other)))

    def as_dict(self) -> dict[str, int]:
        """The counts by their names."""
        return dict(zip(COUNT_FIELDS, _values(self), strict=True))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Counts:
        """The counts of `as_dict`; those that are not in it are 0."""
        return cls(*(int(values.get(name, 0)) for name in COUNT_FIELDS))


COUNT_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Counts))
_values = attrgetter(*COUNT_FIELDS)
