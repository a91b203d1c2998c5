"""`MilvusTarget`: the port, method by method; the work is in the modules beside it.

They are imported on first use: they bring Arrow, which a run that finds nothing to do can spare.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from instep.domain.document_columns import DocumentColumn
from instep.domain.filters import Condition
from instep.domain.waves import Mark
from instep.domain.words import TextQuery
from instep.errors import Away, Transient, UserError
from instep.targets.document_target import EQUAL, ChunkWriter, FusionWeights, Hit, SearchMode, StoredRow
from instep.targets.facets import Counted, Facet
from instep.targets.milvus import chunk_lists, journal, layout, location
from instep.targets.milvus.journal import Journal
from instep.targets.milvus.location import Location
from instep.targets.ownership import NO_OWNER, OwnedIndexes, Owner, checked_name
from instep.targets.probe import probe
from instep.targets.ranking import Search
from instep.targets.widths import Widths

if TYPE_CHECKING:
    import pyarrow as pa

#: Records of epochs that are over stay so long.
_KEEP_SECONDS = 3600.0


@dataclass(frozen=True)
class MilvusTarget(Widths, OwnedIndexes):
    """Collections of Milvus: on a server (`http://host:19530/database`), or in this process (a file that ends in .db).

    Documents of route bucket 3 are in the partition `<prefix>_3`. The prefix is for new indexes: others keep theirs.
    """

    uri: str
    token: str | None = field(default=None, repr=False)
    prefix: str = "bucket"
    owner: Owner = field(default=NO_OWNER, kw_only=True)

    kind: Literal["idempotent"] = field(default="idempotent", init=False)

    def __post_init__(self) -> None:
        # Tasks may run in another working directory: relative paths become absolute here.
        if "://" not in self.uri:
            object.__setattr__(self, "uri", str(Path(self.uri).expanduser().resolve()))

    @property
    def _place(self) -> Location:
        return Location(self.uri, self.token)

    def _journal(self, physical: str) -> Journal:
        return Journal(self._place, checked_name(physical))

    @property
    def shown(self) -> str:
        return self._place.shown

    def owner_of(self, name: str) -> str | None:
        checked_name(name)
        if (said := journal.owner(self._place, name)) is not None:
            return said
        if layout.exists(self._place, name):
            return ""
        if (promoted := journal.newest(self._place, name)) is not None:
            return self.owner_of(promoted["attempt"]) if promoted["attempt"] else None
        return "" if journal.shown_by(self._place, location.collection(name)) is not None else None

    def claim(self, name: str, *, of: str) -> None:
        with self._place.alone():
            found = self.owner_of(name)
            if found is None:
                raise UserError(f"there is no {name!r} to be claimed", where=self.shown)
            self._own(name, self.claimed(name, of, found))

    def _own(self, name: str, owner: str) -> None:
        """On a server others may do so at once: who came second is refused."""
        journal.own(self._place, name, owner)
        self.demand(name)

    def check(self) -> None:
        name = str(uuid.uuid4())
        try:
            with self._place.alone():
                probe(
                    partial(journal.write, self._place, [journal.record("check", name)]),
                    partial(journal.remove, self._place, f'entry == "check" and name == "{name}"'),
                )
        except Transient as error:
            raise Away(str(error), hint="Is the server up, the address right? Try again later.") from None

    def create(self, physical: str, dimensions: int, buckets: int, columns: Sequence[DocumentColumn] = ()) -> None:
        checked_name(physical)
        if dimensions < 1:
            raise UserError(f"an index needs at least one dimension, not {dimensions}")
        with self._place.alone():
            self.demand(physical)
            if not layout.exists(self._place, physical):
                # Before the collection: an index without one could be taken for a leftover.
                self._own(physical, self.owner.id)
                self._journal(physical).begin()
                chunk_lists.create(self._place, physical)
            layout.create(self._place, physical, layout.Layout(dimensions, buckets, self.prefix), columns)

    def exists(self, physical: str) -> bool:
        return layout.exists(self._place, physical)

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        layout.found(self._place, physical)
        with self._place.alone():
            self._own(physical, self.demand(physical))
            return self._journal(physical).fence(epoch, marks)

    def epoch(self, physical: str) -> int:
        layout.found(self._place, physical)
        return self._journal(physical).newest

    def writer(self, physical: str, base: int) -> ChunkWriter:
        from instep.targets.milvus.staging import MilvusChunkWriter

        return MilvusChunkWriter(self._place, physical, base)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        """The rows are there already, since they were staged: this is the word that all of them are."""
        log = self._journal(physical)
        with self._place.alone():
            version = log.find(attempt)
            if version is None:
                log.refuse(epoch, marks, since=base)
                version = log.commit(epoch, attempt, marks)
        return version

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        return self._journal(physical).committed(since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        """A server indexes what was written by itself, in time. Milvus Lite does when it is told to: before, it looks
        at every row for whatever it is asked (11,500 rows: 2.6 seconds, and 0.2 afterwards).
        """
        with self._place.alone():
            self.demand(physical)
            if full or self._place.is_lite:
                chunk_lists.flush(self._place, physical)
                self._place.call("flush", location.collection(physical))
            if full:
                self._place.call("compact", location.collection(physical))
            self._journal(physical).forget(_KEEP_SECONDS)

    def refinable(self, physical: str) -> bool:
        """Never: a server builds its indexes by itself, and Milvus Lite in `maintain`."""
        return False

    def refine(self, physical: str) -> None:
        """Nothing: see `refinable`."""

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        checked_name(alias)
        if physical is not None:
            layout.found(self._place, physical)
        with self._place.alone():
            if physical is not None:
                self.demand(physical)
            self._own(alias, self.demand(alias))
            journal.promote(self._place, alias, physical, epoch)

    def served(self, alias: str) -> str | None:
        return journal.served(self._place, checked_name(alias))

    def shows(self, alias: str) -> bool:
        return journal.shown_by(self._place, location.collection(alias)) is not None

    def rows(self, physical: str) -> int:
        from instep.targets.milvus import searching

        return searching.rows(self._place, physical)

    def row(self, physical: str, id: str) -> StoredRow | None:
        from instep.targets.milvus import searching

        return searching.row(self._place, physical, id)

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        from instep.targets.milvus import searching

        return searching.contents(self._place, physical)

    def written(self, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn] = ()) -> pa.Table:
        from instep.targets.milvus import searching

        return searching.written(self._place, physical, document_ids, columns)

    def _indexes(self, prefix: str) -> list[str]:
        made = map(location.index, self._place.call("list_collections"))
        return sorted(each for each in made if each.startswith(prefix))

    def _idle(self, physical: str) -> float:
        return time.time() - self._journal(physical).last_change()

    def drop(self, physical: str) -> None:
        """Drop an index: first its records, so that a new one of that name has nothing of them; its owner's record
        last. Whose it is goes last.
        """
        with self._place.alone():
            self.demand(physical)
            self._forget_width(physical)
            self._journal(physical).drop()
            chunk_lists.forget(self._place, physical)
            layout.drop(self._place, physical)
            journal.disown(self._place, physical)

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
        from instep.targets.milvus import searching

        dimensions = self._width(physical, lambda: layout.found(self._place, physical).dimensions)
        return searching.search(
            self._place, physical, Search(entity, text, vector, mode, limit, where, weights, columns), dimensions
        )

    def facets(self, physical: str, counted: Counted) -> dict[str, Facet]:
        from instep.targets.milvus import searching

        return searching.facets(self._place, physical, counted)
