"""Documents: the manifest of each instance, one row for each document that is in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import String, bindparam, delete, func, insert, or_, select, update

from instep.domain.buckets import BucketLoad
from instep.domain.jobs import JobPart
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.waves import SliceOutcome
from instep.ledger import bucket_loads, failures, leases, removals
from instep.ledger.base_form import BASE, current, known, packed, unpacked
from instep.ledger.bases import BaseFiles
from instep.ledger.document_entries import entries_of, versions_of
from instep.ledger.document_pages import number_of, pages, rows_of
from instep.ledger.entry_fields import fields_in, ids_of
from instep.ledger.manifest_revisions import Manifest, manifest_of, next_revision
from instep.ledger.recent_entries import RecentEntries, Written, replaced, without
from instep.ledger.row_columns import in_columns
from instep.ledger.tables import documents, manifests
from instep.ledger.transaction import Database, Store, Transaction, batches, reads, uncollected, writes

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.document_state.pieces import Recorded

#: Up to so many documents are looked for one by one; for more, all are looked at.
_FEW: Final = 5_000
#: So many documents make a base file, and one anew when so large a share of them was written since.
_BASE_ROWS: Final = 50_000
_BASE_SHARE: Final = 0.1


class Documents(Store):
    """The documents of an instance, by its manifest."""

    def __init__(self, database: Database, bases: BaseFiles | None, recent: RecentEntries) -> None:
        super().__init__(database)
        self._bases = bases
        self._recent = recent

    def remember(self, instance: str) -> None:
        """Keep in memory what this process writes of an instance from here on, until that is compacted."""
        if self._bases is not None:
            self._recent.keep(instance)

    @reads
    def entries(self, tx: Transaction, instance: str) -> dict[str, ManifestEntry]:
        """Read all entries of an instance, by URI."""
        return entries_of(tx, instance)

    @reads
    def some(self, tx: Transaction, instance: str, uris: Collection[str]) -> dict[str, ManifestEntry]:
        """Read the entries of an instance that have one of these URIs, all of which it has."""
        found: dict[str, ManifestEntry] = {}
        if len(uris) <= _FEW:
            for ids in batches(ids_of(uris)):
                found |= entries_of(tx, instance, documents.c.document_id.in_(ids))
        # Each has the id that its URI gives it; should one have another, all are looked at.
        if len(found) < len(uris):
            found = entries_of(tx, instance)
        wanted = set(uris)
        return {uri: entry for uri, entry in found.items() if uri in wanted}

    @reads
    def versions(self, tx: Transaction, instance: str) -> dict[str, tuple[int, str]]:
        """Size and version of all entries of an instance, by URI: enough to see that nothing has changed, and half as
        much to read.
        """
        return versions_of(tx, instance)

    def columns(self, instance: str, names: Sequence[str]) -> pa.Table:
        """Read these columns of all entries of an instance: of those in its base file, if it has one, and of what was
        written since.
        """
        return self._database.read_steadily(lambda tx: self._columns(tx, manifest_of(tx, instance), names))

    def _columns(self, tx: Transaction, manifest: Manifest, names: Sequence[str]) -> pa.Table:
        merged = self._merged(tx, manifest) if set(names) <= set(BASE) else None
        return rows_of(tx, manifest.instance, names) if merged is None else unpacked(merged.select(list(names)))

    def _merged(self, tx: Transaction, manifest: Manifest) -> pa.Table | None:
        """Merge the base with what was written since, in its form. None if there is no base."""
        file = self._base(manifest)
        base = None if file is None else packed(file)
        if base is None or manifest.revision == manifest.base_revision:
            return base  # Without a look at each row.
        later = packed(rows_of(tx, manifest.instance, BASE, since=manifest.base_revision))
        removed = packed(removals.ids_of(tx, manifest.instance))
        # What has ids of another kind is read as a whole.
        return None if later is None or removed is None else replaced(without(base, removed), later)

    def _sums(self, tx: Transaction, instance: str, of: Callable[[pa.Table], Sequence[int]]) -> list[int] | None:
        """The sums of some numbers `of` the sizes and chunks of all entries of an instance, if a base has them as they
        are, or this process has just written them all: a look at each row of many takes long.
        """
        manifest = manifest_of(tx, instance)
        if manifest.base is None:
            recent = self._recent.between(instance, 0, manifest.revision)
            return None if recent is None else list(of(recent))
        if self._bases is None or manifest.revision != manifest.base_revision:
            return None
        return self._bases.sums(manifest.base, of)

    def _over(self, tx: Transaction, instance: str, size: int, chunks: int | None) -> int | None:
        """The number of documents with more bytes or chunks, if a base tells."""

        def over(sizes: pa.Table) -> Sequence[int]:
            import pyarrow as pa
            import pyarrow.compute as pc

            found: Any = pc.greater(sizes["size"], pa.scalar(size))
            if chunks is not None:
                found = pc.or_(found, pc.greater(sizes["chunks"], pa.scalar(chunks)))
            return [pc.sum(found, min_count=0).as_py()]

        sums = self._sums(tx, instance, over)
        return None if sums is None else sums[0]

    def _base(self, manifest: Manifest) -> pa.Table | None:
        return None if self._bases is None or manifest.base is None else known(self._bases.read(manifest.base))

    def in_pieces(self, instance: str, into: Path, *, afresh: bool = False) -> Recorded:
        """Provide files with what tasks need of all entries of an instance: those of its base, and in that folder what
        was written since; or all, if it has no such base, or `afresh`.
        """

        def read(tx: Transaction) -> Recorded:
            found = manifest_of(tx, instance)
            return self._in_pieces(tx, found._replace(base=None) if afresh else found, into)

        return self._database.read_steadily(read)

    def _in_pieces(self, tx: Transaction, manifest: Manifest, into: Path) -> Recorded:
        from instep.document_state.pieces import PIECE, PieceFiles, Recorded, write_pieces

        nothing = PieceFiles(into, ())
        base = None if self._bases is None or manifest.base is None else self._bases.pieces(manifest.base)
        lost = base is not None and bool(base.missing())
        if lost:
            base = None
        if base is not None and manifest.revision == manifest.base_revision:
            return Recorded(base, nothing, nothing)
        since = None if base is None else manifest.base_revision
        later = write_pieces(into, pages(tx, manifest.instance, PIECE, since=since))
        if base is None:
            return Recorded(later, nothing, nothing, lost)
        return Recorded(base, later, write_pieces(into, removals.pages(tx, manifest.instance)))

    def compact(self, instance: str, *, in_pieces: bool = False) -> None:
        """Write the instance's base anew, if it has many documents and none, or one that much was written since: one
        file, or `in_pieces` for tasks. A worker may write documents of it at the same time; then it is not named.
        """
        if self._bases is None:
            return
        in_pieces = in_pieces and self._bases.files.folder is not None
        manifest = self._database.read(lambda tx: manifest_of(tx, instance))
        pieces = None if manifest.base is None else self._bases.pieces(manifest.base)
        if pieces is not None and pieces.damaged():
            pieces = None
        base = None
        if pieces is not None:
            rows: int | None = pieces.rows
            outdated = not in_pieces
        else:
            base = self._base(manifest)
            rows = None if base is None else base.num_rows
            outdated = base is not None and (in_pieces or not current(base))
        enough = _BASE_ROWS if rows is None else max(_BASE_ROWS, rows) * _BASE_SHARE
        later, removed = self._since(manifest, rows)
        if later + removed < enough and not outdated:
            return
        if in_pieces:
            name = self._written_in_pieces(self._bases, manifest, anew=pieces is None)
        else:
            name = self._written(self._bases, manifest, self._remembered(manifest, base, later))
        if name is not None:
            self._name(manifest, name)
            self._bases.remove_all_but(self._named())
        self._recent.forget(instance)

    def _written(self, bases: BaseFiles, manifest: Manifest, rows: pa.Table | None) -> str | None:
        """The name of a new base of these rows, or else of what the ledger has; None if the manifest is another one by
        now, or an id does not fit into one.
        """
        instance, now = manifest.instance, manifest
        if rows is None:
            now, rows = self._database.read_steadily(lambda tx: (manifest_of(tx, instance), self._packed(tx, manifest)))
        return bases.write(rows.sort_by("uri")) if now == manifest and rows is not None else None

    def _remembered(self, manifest: Manifest, base: pa.Table | None, later: int) -> pa.Table | None:
        """The columns of a new base, if this process itself has written all that was written after this one, which are
        so many documents.
        """
        after = 0 if base is None else manifest.base_revision
        recent = self._recent.between(manifest.instance, after, manifest.revision)
        if recent is None or recent.num_rows != later:
            return None
        rows, before = packed(recent), None if base is None else packed(base)
        return rows if rows is None or before is None else replaced(before, rows)

    def _written_in_pieces(self, bases: BaseFiles, manifest: Manifest, *, anew: bool) -> str | None:
        """Write a base in pieces, each of them a part of the documents: no more than one is held in memory. Rows of the
        ledger are read as far as they were written after the last base, or all (`anew`).
        """
        from instep.document_state.corpus_parts import bounds, one_by_one, parts_for
        from instep.document_state.pieces import PIECE

        def written(tx: Transaction) -> str | None:
            if manifest_of(tx, manifest.instance) != manifest:
                return None
            if anew:
                found = pages(tx, manifest.instance, PIECE)
                return bases.write_pieces(one_by_one(found, parts_for(number_of(tx, manifest.instance))))
            with TemporaryDirectory() as later:
                recorded = self._in_pieces(tx, manifest, Path(later))
                parts = parts_for(recorded.documents)
                return bases.write_pieces(recorded.between(*bounds(part, parts)) for part in range(parts))

        return self._database.read_steadily(written)

    def _packed(self, tx: Transaction, manifest: Manifest) -> pa.Table | None:
        """The columns of a base; None if an id does not fit into one."""
        merged = self._merged(tx, manifest)
        return packed(rows_of(tx, manifest.instance, BASE)) if merged is None else merged

    @reads
    def _since(self, tx: Transaction, manifest: Manifest, base: int | None) -> tuple[int, int]:
        """The numbers of documents that were written and removed after the base; or written at all."""
        since = -1 if base is None else manifest.base_revision
        if since == manifest.revision:
            return 0, 0
        later = (documents.c.instance == manifest.instance, documents.c.revision > since)
        written = int(tx.connection.scalar(select(func.count()).select_from(documents).where(*later)) or 0)
        return written, removals.count(tx, manifest.instance)

    @writes
    def _name(self, tx: Transaction, manifest: Manifest, name: str) -> None:
        """Name the base file of a manifest, if nothing was written since the manifest was read."""
        here = (manifests.c.instance == manifest.instance, manifests.c.revision == manifest.revision)
        named = {"base": name, "base_revision": manifest.revision}
        if tx.connection.execute(update(manifests).where(*here).values(**named)).rowcount:
            removals.forget(tx, manifest.instance)
            return
        if not manifest.revision and manifest_of(tx, manifest.instance) == manifest:
            first = insert(manifests).values(instance=manifest.instance, revision=0, **named)
            tx.connection.execute(first)

    @reads
    def _named(self, tx: Transaction) -> set[str]:
        return set(tx.connection.scalars(select(manifests.c.base).where(manifests.c.base.is_not(None))))

    @reads
    def named(self, tx: Transaction, instance: str, uris: pa.Array[Any], names: Sequence[str]) -> pa.Table:
        """Read these columns, the URI among them, of the entries that have these URIs."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from instep.document_state.entries import entry_schema

        schema = entry_schema(names)
        found: list[pa.RecordBatch] = []
        if len(uris) <= _FEW:
            # Each has the id that its URI gives it; should one have another, all are looked at.
            columns = [documents.c[name] for name in names]
            for ids in batches(ids_of(uris.to_pylist())):
                some = select(*columns).where(documents.c.instance == instance, documents.c.document_id.in_(ids))
                found.append(in_columns(tx.connection.execute(some).fetchall(), schema))
            if sum(each.num_rows for each in found) == len(uris):
                return pa.Table.from_batches(found, schema)
        named = [each.filter(pc.is_in(each["uri"], value_set=uris)) for each in pages(tx, instance, names)]
        return pa.Table.from_batches(named, schema)

    @reads
    def get(self, tx: Transaction, instance: str, document_id: str) -> ManifestEntry | None:
        """Read one entry of an instance, at a cost that does not depend on their number."""
        columns = [documents.c[name] for name in ManifestEntry._fields]
        one = select(*columns).where(documents.c.instance == instance, documents.c.document_id == document_id)
        row = tx.connection.execute(one).one_or_none()
        return None if row is None else ManifestEntry._make(row)

    @reads
    def of_ids(self, tx: Transaction, instance: str, ids: Sequence[str]) -> dict[str, ManifestEntry]:
        """The entries of an instance that have these ids, by id."""
        found = (entries_of(tx, instance, documents.c.document_id.in_(some)).values() for some in batches(ids))
        return {entry.document_id: entry for entries in found for entry in entries}

    @reads
    def with_ids(self, tx: Transaction, instance: str, ids: Sequence[str], names: Sequence[str]) -> pa.Table:
        """Read these columns of the entries of an instance that have these ids."""
        import pyarrow as pa

        from instep.document_state.entries import entry_schema

        # Ids are kept as they are: they need no look at each, and one statement does for all portions.
        wanted = documents.c.document_id.in_(bindparam("b_ids", expanding=True, type_=String))
        every = select(*(documents.c[name] for name in names)).where(documents.c.instance == instance, wanted)
        schema = entry_schema(names)
        with uncollected():
            found = [
                in_columns(tx.connection.execute(every, {"b_ids": some}).fetchall(), schema) for some in batches(ids)
            ]
        return pa.Table.from_batches(found, schema)

    @reads
    def between(self, tx: Transaction, instance: str, bounds: tuple[str, str], names: Sequence[str]) -> pa.Table:
        """Read these columns of the entries of an instance with ids from the first bound on that are less than the
        second ('' is none), by their ids.
        """
        import pyarrow as pa

        from instep.document_state.entries import entry_schema

        lower, upper = bounds
        here = [documents.c.instance == instance, documents.c.document_id >= lower]
        if upper:
            here.append(documents.c.document_id < upper)
        some = select(*(documents.c[name] for name in names)).where(*here).order_by(documents.c.document_id)
        with uncollected():
            return pa.Table.from_batches([in_columns(tx.connection.execute(some).fetchall(), entry_schema(names))])

    @reads
    def any_below(self, tx: Transaction, instance: str, uris: Iterable[str]) -> bool:
        """Whether there are entries of an instance whose URIs go on, after a slash, from one of these."""
        for uri in uris:
            below = (documents.c.instance == instance, documents.c.uri.startswith(f"{uri}/", autoescape=True))
            one = select(documents.c.document_id).where(*below).limit(1)
            if tx.connection.scalar(one) is not None:
                return True
        return False

    @reads
    def sampled(self, tx: Transaction, instance: str, ids: Sequence[str]) -> list[ManifestEntry]:
        """Read some entries of an instance: for each of these ids the next one from there on, if there is one. Each
        entry once, by their ids.
        """
        columns = [documents.c[name] for name in ManifestEntry._fields]
        found: dict[str, ManifestEntry] = {}
        for each in ids:
            following = (documents.c.instance == instance, documents.c.document_id >= each)
            first = select(*columns).where(*following).order_by(documents.c.document_id).limit(1)
            row = tx.connection.execute(first).one_or_none()
            if row is not None:
                found[row.document_id] = ManifestEntry._make(row)
        return [found[each] for each in sorted(found)]

    @reads
    def number(self, tx: Transaction, instance: str) -> int:
        """The number of documents of an instance."""
        return number_of(tx, instance)

    def totals(self, instance: str) -> tuple[int, int, int]:
        """Documents, rows (chunks) and bytes of an instance."""
        return self._database.read(lambda tx: self._totals(tx, instance))

    def _totals(self, tx: Transaction, instance: str) -> tuple[int, int, int]:

        def of(sizes: pa.Table) -> Sequence[int]:
            import pyarrow.compute as pc

            chunks, size = (pc.sum(sizes[name], min_count=0).as_py() for name in ("chunks", "size"))
            return sizes.num_rows, chunks, size

        if (found := self._sums(tx, instance, of)) is not None:
            count, rows, size = found
            return count, rows, size
        sums = select(func.count(), func.sum(documents.c.chunks), func.sum(documents.c.size))
        count, rows, size = tx.connection.execute(sums.where(documents.c.instance == instance)).one()
        return int(count), int(rows or 0), int(size or 0)

    @reads
    def oversized(
        self, tx: Transaction, instance: str, *, size: int, chunks: int | None, limit: int
    ) -> tuple[int, list[ManifestEntry]]:
        """Count the documents of an instance with more bytes or more chunks, and read the largest `limit` of them."""
        over = [documents.c.size > size, *([documents.c.chunks > chunks] if chunks is not None else [])]
        of_it = (documents.c.instance == instance, or_(*over))
        count = self._over(tx, instance, size, chunks)
        if count is None:
            count = int(tx.connection.scalar(select(func.count()).select_from(documents).where(*of_it)) or 0)
        if not count or not limit:
            return count, []
        columns = [documents.c[name] for name in ManifestEntry._fields]
        largest = select(*columns).where(*of_it).order_by(documents.c.size.desc(), documents.c.document_id).limit(limit)
        return count, [ManifestEntry._make(row) for row in tx.connection.execute(largest)]

    @reads
    def bucket_loads(self, tx: Transaction, ref: PartitionRef, generation: str, instance: str) -> list[BucketLoad]:
        """Summarize the buckets of an instance, by number: their documents by the manifest, and their backlog by the
        slices of jobs on that, and of open parts on the generation. A bucket without either is left out.
        """
        return bucket_loads.read(tx, ref, generation, instance)

    @writes
    def absorb(self, tx: Transaction, part: JobPart, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        """Manifest rows and failures of work that no slice of the job stands for: what has changed in the source while
        the job builds. The part is the job's own, or with the instance that is served in place of its own. Again it
        changes nothing. Raises `Fenced`, changing nothing, if the part's epoch is not the lease's any more.
        """
        # The lease is locked: nothing is written to an instance that its next holder has looked at.
        leases.demand_epoch(tx, job_id, part)
        record(tx, part, job_id, [each.storable() for each in outcomes])


def record(tx: Transaction, part: JobPart, job_id: str, outcomes: Sequence[SliceOutcome]) -> None:
    """Manifest rows and failures of these outcomes, which are `storable`."""
    _write(tx, part.instance, outcomes)
    failures.write(tx, (str(part.ref), part.generation), job_id, outcomes)


def _write(tx: Transaction, instance: str, outcomes: Sequence[SliceOutcome]) -> None:
    removed = [each for outcome in outcomes for each in outcome.removed]
    entries = [outcome.entries for outcome in outcomes if len(outcome.entries)]
    if not (removed or entries):
        return
    gone = 0
    for some in batches(removed):
        here = (documents.c.instance == instance, documents.c.document_id.in_(some))
        gone += tx.connection.execute(delete(documents).where(*here)).rowcount
    if not (gone or entries):
        return
    manifest, table = next_revision(tx, instance), None
    revision = manifest.revision
    # Those from before there were revisions are of none.
    whole = revision > 1 or not number_of(tx, instance)
    if gone and manifest.base is not None:
        removals.note(tx, instance, removed)
    if entries:
        portions, table = fields_in(entries)
        for columns in portions:
            rows = len(columns["document_id"])
            columns |= {"instance": [instance] * rows, "revision": [revision] * rows}
            tx.dialect.replace_documents(tx.connection, columns)
    tx.written.append(Written(instance, revision, table if whole and not gone else None))


def drop(tx: Transaction, instance: str) -> None:
    tx.written.append(Written(instance, 0, None))
    tx.connection.execute(delete(documents).where(documents.c.instance == instance))
    tx.connection.execute(delete(manifests).where(manifests.c.instance == instance))
    removals.forget(tx, instance)
