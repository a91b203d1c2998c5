"""Result of the inspection of an index that the ledger does not know, before it is adopted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.domain.jobs import Claim, SlicePlan
from instep.domain.manifest import ManifestEntry, decode_changes
from instep.domain.texts import amount


@dataclass(frozen=True)
class Inspection:
    """Result of an inspection. `entries` is the manifest by document id. Counts: `same` have the same id and version in
    the source; `changed` another version; `gone` are not listed; `new` are only listed. `damaged` lack chunks or have
    some twice: they are written again. `sampled` were read, chunked and embedded again. `slices` are those of a job
    that records the index; if that dies, they are a build's slices.
    """

    rows: int
    entries: Mapping[str, ManifestEntry]
    same: int
    changed: int
    gone: int
    new: int
    damaged: int
    sampled: int
    slices: Sequence[SlicePlan]

    @property
    def words(self) -> str:
        """Summary of the comparison, as text."""
        others = (("changed", self.changed), ("gone", self.gone), ("new", self.new), ("damaged", self.damaged))
        rest = "".join(f", {number:,} {name}" for name, number in others if number)
        sampled = (
            f"; {amount(self.sampled, 'document')} read, cut and embedded again gave the same" if self.sampled else ""
        )
        return f"{self.same:,} of {amount(len(self.entries), 'document')} as in the source{rest}{sampled}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "documents": len(self.entries),
            "rows": self.rows,
            "same": self.same,
            "changed": self.changed,
            "gone": self.gone,
            "new": self.new,
            "damaged": self.damaged,
            "sampled": self.sampled,
        }

    def documents_of(self, claim: Claim) -> list[str]:
        return [each.document_id for each in decode_changes(claim.payload)]
