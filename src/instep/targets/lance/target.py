"""`LanceTarget`: the port, method by method; the work is in the modules beside it.

They are imported on first use: they bring Arrow, which a run that finds nothing to do can spare.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

from instep.domain.document_columns import DocumentColumn
from instep.domain.filters import Condition
from instep.domain.waves import Mark
from instep.domain.words import TextQuery
from instep.errors import InstepError, UserError
from instep.targets.document_target import (
    EQUAL,
    ChunkWriter,
    FusionWeights,
    Hit,
    SearchMode,
    StoredRow,
    demand_same,
    row_schema,
)
from instep.targets.facets import Counted, Facet
from instep.targets.lance import aliases
from instep.targets.lance.location import Location, lance_library, location_of
from instep.targets.ownership import NO_OWNER, OwnedIndexes, Owner
from instep.targets.ranking import Search

if TYPE_CHECKING:
    import pyarrow as pa

#: Below this a commit or an index build is likely to hit the end of the disk half-way.
_FREE_BYTES = 100 * 1024 * 1024


@dataclass(frozen=True)
class LanceTarget(OwnedIndexes):
    """Indexes as Lance datasets under `uri`: a folder, or a URL that lance can reach (s3, gs, az).

    `storage_options` go to lance as they are. `keep_seconds` is how long old versions stay, for
    readers that hold them and for commits that must prove what happened since their base.
    """

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    keep_seconds: float = 3600.0
    owner: Owner = field(default=NO_OWNER, kw_only=True)

    kind: Literal["transactional"] = field(default="transactional", init=False)

    def __post_init__(self) -> None:
        # Tasks may run in another working directory: relative paths become absolute here.
        object.__setattr__(self, "uri", location_of(self.uri).uri)

    @cached_property
    def _place(self) -> Location:
        return location_of(self.uri, self.storage_options)

    @property
    def shown(self) -> str:
        return self._place.shown

    def owner_of(self, name: str) -> str | None:
        from instep.targets.lance.commits import State

        if (alias := aliases.owner(self._place, name)) is not None:
            return self._resolved(*alias)
        dataset = self._place.find(name)
        if dataset is None:
            return None
        with self._place.understood():
            return State.of(dataset).owner

    def claim(self, name: str, *, of: str) -> None:
        from instep.targets.lance import commits

        owned = partial(self.claimed, name, of)
        if self._place.has(name):
            commits.claim(self._place, name, owned)
        else:
            aliases.claim(self._place, name, lambda found, serves: owned(self._resolved(found, serves) or ""))

    def taken_alias(self, alias: str, found: str, serves: str | None) -> str:
        """`taken`, given whose the alias says it is and what it serves."""
        return self.taken(alias, self._resolved(found, serves))

    def _resolved(self, found: str, serves: str | None) -> str | None:
        return found or (self.owner_of(serves) if serves else None)

    def check(self) -> None:
        probe = f".instep-check-{uuid.uuid4().hex}"
        try:
            self._place.create(probe, b"ok")
            self._place.remove(probe)
        except UserError:
            raise
        except InstepError as error:
            raise UserError(
                f"the index cannot be reached: {error}", hint="Check the target's uri and storage_options."
            ) from None
        if self._place.folder is not None and shutil.disk_usage(self._place.folder).free < _FREE_BYTES:
            raise UserError("less than 100 MB of disk are free", where=self._place.shown, hint="Free some space.")

    def create(self, physical: str, dimensions: int, buckets: int, columns: Sequence[DocumentColumn] = ()) -> None:
        if dimensions < 1:
            raise UserError(f"an index needs at least one dimension, not {dimensions}")
        from instep.targets.lance.commits import OWNER

        lance = lance_library()
        metadata = {"instep.dataset": uuid.uuid4().hex, OWNER: self.owner.id}
        place, schema = self._place, row_schema(dimensions, columns).with_metadata(metadata)
        uri = place.dataset_uri(physical)
        if not place.has(physical):
            try:
                # "create" is atomic: of two at once, one makes the first version and the other fails.
                options = dict(place.storage_options) or None
                lance.write_dataset(schema.empty_table(), uri, mode="create", storage_options=options)
            except (OSError, ValueError, RuntimeError):
                if not place.has(physical):
                    with place.understood():
                        raise
            from instep.targets.lance import upkeep

            upkeep.declare(place, physical)
        self.demand(physical)
        demand_same(physical, place.open(physical).schema, dimensions, columns, where=place.shown)

    def exists(self, physical: str) -> bool:
        return self._place.has(physical)

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        from instep.targets.lance import commits

        return commits.fence(self._place, physical, epoch, marks, owned=partial(self.taken, physical))

    def epoch(self, physical: str) -> int:
        from instep.targets.lance import commits

        return commits.newest_epoch(self._place, physical)

    def writer(self, physical: str, base: int) -> ChunkWriter:
        from instep.targets.lance.staging import LanceChunkWriter

        return LanceChunkWriter(self._place, physical, base)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        from instep.targets.lance import commits
        from instep.targets.lance.staging import Staged, replacement

        change = replacement(self._place, physical, [Staged.decode(each) for each in staged])
        return commits.commit(
            self._place, physical, base=base, epoch=epoch, attempt=attempt, change=change, marks=marks
        )

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        from instep.targets.lance import commits

        return commits.committed(self._place, physical, since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        from instep.targets.lance import upkeep

        self.demand(physical)
        upkeep.maintain(self._place, physical, full=full, keep_seconds=self.keep_seconds)

    def heavy(self, physical: str) -> bool:
        """See `document_target.Heavy`."""
        from instep.targets.lance import upkeep

        return upkeep.heavy(self._place, physical)

    def refinable(self, physical: str) -> bool:
        from instep.targets.lance import upkeep

        return upkeep.refinable(self._place, physical)

    def refine(self, physical: str) -> None:
        from instep.targets.lance import upkeep

        self.demand(physical)
        upkeep.refine(self._place, physical)

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        if physical is not None:
            self._place.open(physical)
            self.demand(physical)
        aliases.promote(self._place, alias, physical, epoch, partial(self.taken_alias, alias))

    def served(self, alias: str) -> str | None:
        return aliases.served(self._place, alias)

    def rows(self, physical: str) -> int:
        dataset = self._place.open(physical)
        with self._place.understood():
            return int(dataset.count_rows())

    def row(self, physical: str, id: str) -> StoredRow | None:
        from instep.targets.lance import searching

        return searching.row(self._place, physical, id)

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        from instep.targets.lance import searching

        return searching.contents(self._place, physical)

    def written(self, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn] = ()) -> pa.Table:
        from instep.targets.lance import searching

        return searching.written(self._place, physical, document_ids, columns)

    def _indexes(self, prefix: str) -> list[str]:
        return self._place.datasets(prefix)

    def _idle(self, physical: str) -> float:
        return self._place.idle(physical)

    def drop(self, physical: str) -> None:
        self.demand(physical)
        self.remove(physical)

    def remove(self, dataset: str) -> None:
        """Remove one dataset of any owner."""
        lance = lance_library()
        uri = self._place.dataset_uri(dataset)
        with self._place.understood():
            try:
                lance.LanceDataset.drop(uri, dict(self._place.storage_options) or None, ignore_not_found=True)
            except ValueError:
                # Not a dataset: what a crash between two files of a drop leaves behind.
                if self._place.folder is None:
                    raise
                shutil.rmtree(uri, ignore_errors=True)

    def search(
        self,
        physical: str,
        *,
        entity: str,
        text: TextQuery,
        vector: Sequence[float] | None,
        mode: SearchMode,
        limit: int,
        where: Condition | None = None,
        weights: FusionWeights = EQUAL,
        columns: Sequence[DocumentColumn] = (),
    ) -> list[Hit]:
        from instep.targets.lance import searching

        return searching.search(
            self._place, physical, Search(entity, text, vector, mode, limit, where, weights, columns)
        )

    def facets(self, physical: str, counted: Counted) -> dict[str, Facet]:
        from instep.targets.lance import searching

        return searching.facets(self._place, physical, counted)
