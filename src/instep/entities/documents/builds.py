"""Two builds of an entity side by side, in columns: all at once, or part after part where they are long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from instep.entities.documents.adapters import DocumentAdapters
from instep.ledger.ledger import Ledger
from instep.sources.tables.row_documents import RowDocuments

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.document_state.pieces import Recorded

#: Up to so many documents are looked at together.
TOGETHER: Final = 500_000
_COLUMNS: Final = ("uri", "size", "version", "chunks")


class Beside(NamedTuple):
    """Documents that are served, those that were built, and those that failed (`uri` and `version`)."""

    served: pa.Table
    built: pa.Table
    failed: pa.Table


def side_by_side(  # noqa: PLR0917 - two builds of something, and what of them
    setup: DocumentAdapters,
    ledger: Ledger,
    served: str,
    built: str,
    failed: Mapping[str, str],
    names: Sequence[str] = _COLUMNS,
) -> Iterator[Beside]:
    """The documents of two instances, in these columns. Each document is in one part of them; only rows of tables,
    which are never renamed, come in parts.
    """
    import pyarrow as pa

    uris: Any = pa.chunked_array([pa.array(list(failed), pa.string())])
    versions: Any = pa.chunked_array([pa.array(list(failed.values()), pa.string())])
    failures = pa.table({"uri": uris, "version": versions})
    most = max(ledger.documents.totals(each)[0] for each in (served, built))
    if most <= TOGETHER or not isinstance(setup.source, RowDocuments):
        before, after = (ledger.documents.columns(each, names) for each in (served, built))
        yield Beside(before, after, failures)
        return
    from instep.document_state.corpus_parts import bounds, part_numbers, parts_for

    with TemporaryDirectory() as folder:
        was, now = (_in_pieces(ledger, each, Path(folder)) for each in (served, built))
        parts = parts_for(most)
        numbers = part_numbers(uris, parts)
        for part in range(parts):
            before, after = (each.between(*bounds(part, parts)).select(list(names)) for each in (was, now))
            yield Beside(before, after, failures.filter(pa.array(numbers == part)))


def _in_pieces(ledger: Ledger, instance: str, folder: Path) -> Recorded:
    found = ledger.documents.in_pieces(instance, folder)
    return ledger.documents.in_pieces(instance, folder, afresh=True) if found.damaged() else found
