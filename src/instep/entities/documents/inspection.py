"""Inspect an index that is unknown to this ledger, against the source and the declaration."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

from instep.domain.document_columns import MODIFIED, SOURCE_URI
from instep.domain.filters import OneOf
from instep.domain.identity import bucket_of, canonical_uri, document_id, renamed
from instep.domain.jobs import JobPart
from instep.domain.manifest import Action, DocumentChange, ManifestEntry, SourceDocument
from instep.domain.planning import cut_documents
from instep.domain.texts import amount
from instep.domain.waves import WaveSlice
from instep.domain.words import MAX_PHRASES, TextQuery, phrase_query
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.setup import Inspection
from instep.errors import Away, UserError

if TYPE_CHECKING:
    from instep.pipeline.documents.pipeline import DocumentProgram
    from instep.pipeline.engine.engine import WaveProgram

#: A listed document, and its entry in the index.
_Pair: TypeAlias = tuple[SourceDocument, ManifestEntry]

#: Number of documents that are read, chunked and embedded again, to see whether the index was made in the same way.
SAMPLES: Final = 8


def inspect(
    setup: DocumentAdapters, physical: str, recorded: Mapping[str, ManifestEntry] | None = None
) -> tuple[Inspection | None, str | None]:
    """The content of an index, and why it cannot stay in use (None if it can). An index of which there is a record was
    made in the way that this says: no document is read again.
    """
    listed = {document_id(canonical_uri(each.uri)): each for each in setup.source.list().documents}
    held = _held(setup, physical)
    names = renamed((uri for uri, *_ in held.values()), (each.uri for each in listed.values()))
    if recorded is None and 2 * len(names) > len(held):
        return None, f"its documents have other names now: {' is '.join(next(iter(names.items())))}"
    same: list[_Pair] = []
    changed: list[_Pair] = []
    damaged = edited = 0
    entries: dict[str, ManifestEntry] = {}
    for id, (uri, version, found, chunks, numbers) in held.items():
        there = listed.get(id)
        as_listed = there is not None and there.version == version
        size = there.size if there is not None and as_listed else 0
        # A damaged or renamed document is written again, whatever its content. One whose chunks came and went is read
        # again: only where they are numbered from 0 on is it known that none is missing.
        intact = numbers is not _Numbers.TWICE and (there is None or there.uri == uri)
        sound = intact and numbers is _Numbers.DENSE
        entries[id] = ManifestEntry(
            id,
            there.uri if there is not None else uri,
            abs(size),
            version if sound else "",
            found if sound else "",
            chunks,
            bucket_of(id, setup.buckets),
        )
        damaged += not intact
        edited += intact and not sound and there is not None
        if there is not None and as_listed and sound:
            same.append((there, entries[id]))
        elif there is not None and sound:
            changed.append((there, entries[id]))
    gone = sum(id not in listed for id in held)
    if recorded is None and held and gone == len(held):
        raise UserError(
            f"index {physical!r} in target {setup.target_name!r} holds nothing that is in {setup.source_text}, but "
            f"{amount(gone, 'document')} such as {next(iter(held.values()))[0]}: it is not adopted",
            where=setup.ref.label,
            hint="It is of another source: give the entity another name, or its target another place.",
        )
    new = sum(id not in held for id in listed)
    rows = sum(each.chunks for each in entries.values())
    # A copy of the source has other modification times and the same content: reading shows it.
    sampled = list(dict.fromkeys([*_largest(same), *_spread(same), *_spread(changed)]))[:SAMPLES]
    unlike = list(entries.values()) if recorded is None else _unlike(entries, recorded)
    slices = cut_documents(list(map(_insertion, unlike)), setup.sizing, priority=setup.priority)
    inspection = Inspection(rows, entries, len(same), len(changed) + edited, gone, new, damaged, 0, slices)
    if recorded is not None:
        return replace(inspection, unlike=len(unlike)), None
    inspection = replace(inspection, sampled=len(sampled))
    return inspection, _why_not(setup, physical, inspection, sampled)


def _unlike(held: dict[str, ManifestEntry], recorded: Mapping[str, ManifestEntry]) -> list[ManifestEntry]:
    """The documents that the index holds otherwise than recorded, and those recorded that it does not hold. Of those
    that are alike the record stays: it may know a later version of the same content.
    """
    then = {each.document_id: each for each in recorded.values()}
    differing = [
        each
        for id, each in held.items()
        if id not in then or (each.document_hash, each.chunks) != (then[id].document_hash, then[id].chunks)
    ]
    return [*differing, *(each for id, each in then.items() if each.chunks and id not in held)]


def _largest(pairs: list[_Pair]) -> list[_Pair]:
    """The documents that another size of chunks would cut otherwise, if any."""
    return sorted(pairs, key=lambda pair: -pair[1].size)[: SAMPLES // 4]


def _spread(pairs: list[_Pair]) -> list[_Pair]:
    return pairs[:: max(1, len(pairs) // SAMPLES)][:SAMPLES]


def _insertion(entry: ManifestEntry, locator: str = "") -> DocumentChange:
    return DocumentChange(
        Action.INSERT, entry.document_id, entry.uri, entry.size, entry.version, entry.bucket, "", "adopted", locator
    )


class _Numbers(Enum):
    """The numbers of a document's chunks: 0, 1, 2, …; with gaps, or below 0; some of them twice."""

    DENSE = auto()
    SPARSE = auto()
    TWICE = auto()

    @classmethod
    def of(cls, places: list[int]) -> Self:
        if len(set(places)) < len(places):
            return cls.TWICE
        return cls.DENSE if sorted(places) == [*range(len(places))] else cls.SPARSE


def _held(setup: DocumentAdapters, physical: str) -> dict[str, tuple[str, str, str, int, _Numbers]]:
    """The stored documents by id: URI, version, hash, number of rows, and the kind of their numbers."""
    firsts: dict[str, tuple[str, str, str]] = {}
    places: dict[str, list[int]] = {}
    for batch in setup.target.contents(physical):
        columns = [batch.column(name).to_pylist() for name in _COLUMNS]
        for id, uri, version, found, place in zip(*columns, strict=True):
            firsts.setdefault(id, (uri, version, found))
            places.setdefault(id, []).append(place)
    return {id: (*first, len(places[id]), _Numbers.of(places[id])) for id, first in firsts.items()}


#: Words of a text by which it is looked for.
_BEGINNING: Final = 12

_COLUMNS: Final = ("document_id", "source_uri", "source_version", "document_hash", "chunk_index")


def _why_not(
    setup: DocumentAdapters,
    physical: str,
    found: Inspection,
    sampled: Sequence[_Pair],
) -> str | None:
    if found.damaged * 2 > len(found.entries):
        return "most of its documents lack chunks, or have some twice"
    if setup.columns:
        return "whether it has the columns that are declared can only be seen by making it again"
    if not has_modified(setup, physical):
        return f"it has no column {MODIFIED.name!r}"
    from instep.pipeline.documents.row_program import LookingProgram

    part = JobPart(setup.ref, "", physical, setup.fingerprint, setup.buckets, 0, 0, False)
    program = setup.programs(part, 0, setup.target)
    if setup.needs_spark or isinstance(program, LookingProgram):
        return "whether it was made in the same way can only be seen by making it again"
    return _otherwise_made(setup, physical, program, sampled)


def has_modified(setup: DocumentAdapters, physical: str) -> bool:
    """Whether the index is of a version that made the built-in column `modified`."""
    try:
        some = next((batch for batch in setup.target.contents(physical) if batch.num_rows), None)
        # A target without a schema of its own tells by its rows.
        ids = ["none"] if some is None else list(map(str, some["document_id"].slice(0, 1).to_pylist()))
        setup.target.written(physical, ids, [MODIFIED])
    except Away:
        raise
    except UserError:
        return False
    return True


def _otherwise_made(
    setup: DocumentAdapters,
    physical: str,
    program: WaveProgram,
    sampled: Sequence[_Pair],
) -> str | None:
    """The differences of newly read, chunked and embedded documents from the index, or None."""
    import pyarrow as pa

    from instep.pipeline.documents.columns import chunk_hashes
    from instep.pipeline.documents.rows import change_batch, embedded_texts

    changes = tuple(_insertion(entry, each.locator) for each, entry in sampled)
    entries = {entry.document_id: entry for _, entry in sampled}
    chunks: dict[str, list[dict[str, Any]]] = {id: [] for id in entries}
    for batch in program.read(iter([change_batch(WaveSlice("sample", 1, 0, 1, changes))])):
        hashed = chunk_hashes(pa.Table.from_batches([batch]), cast("DocumentProgram", program).columns).to_pylist()
        for row, found, text in zip(batch.to_pylist(), hashed, embedded_texts(batch).to_pylist(), strict=True):
            row |= {"chunk_hash": found, "embedded": text}
            if row["end_of_document"]:
                if row["document_hash"] != entries[row["document_id"]].document_hash or row["failure_stage"]:
                    del chunks[row["document_id"]]
            else:
                chunks[row["document_id"]].append(row)
    if not chunks:
        return "none of its documents that were read again is unchanged"
    for id, rows in chunks.items():
        if len(rows) != entries[id].chunks:
            return f"{entries[id].uri} is cut into {amount(len(rows), 'chunk')} now, and has {entries[id].chunks:,}"
    firsts = [rows[len(rows) // 2] for rows in chunks.values() if rows]
    for row in itertools.chain.from_iterable(rows[:3] for rows in chunks.values()):
        stored = setup.target.row(physical, row["chunk_id"])
        if stored is None or stored.chunk_hash != row["chunk_hash"]:
            return f"{row['source_uri']} is cut in another way now (chunk sizes, or how it is parsed)"
        if stored.title != row["title"]:
            return f"{row['source_uri']} has another title now"
    return _otherwise_searched(setup, physical, firsts) or _otherwise_embedded(setup, physical, firsts)


def _otherwise_searched(setup: DocumentAdapters, physical: str, rows: Sequence[dict[str, Any]]) -> str | None:
    """Check the words: a text is found by how it begins, if its words were made in the same way."""
    if "text" not in dict(setup.searched.weights):
        return "whether it has the words that are declared can only be seen by making it again"
    for row in rows:
        text = phrase_query(" ".join(row["text"].split()[:_BEGINNING]), setup.searched.language)
        if not text.words or len(text.phrases) > MAX_PHRASES:
            continue
        own = OneOf(SOURCE_URI, (row["source_uri"],))
        try:
            hits = setup.target.search(
                physical, entity=setup.alias, text=text, vector=None, mode="text", limit=1, where=own
            )
        except Away:
            raise
        except UserError:
            hits = []
        if not hits:
            return "its texts are not found by their words as they are declared"
    return None


def _otherwise_embedded(setup: DocumentAdapters, physical: str, rows: Sequence[dict[str, Any]]) -> str | None:
    """Check the embedder: the nearest neighbour of a text's vector is the text itself, if the embedder is the same."""
    vectors = setup.embedder().embed([row["embedded"] for row in rows])
    missed = 0
    for row, vector in zip(rows, vectors.tolist(), strict=True):
        hits = setup.target.search(
            physical, entity=setup.alias, text=TextQuery(), vector=vector, mode="vector", limit=1
        )
        missed += not hits or hits[0].text != row["text"]
    return "its vectors are of another embedder" if missed * 4 > len(rows) else None
