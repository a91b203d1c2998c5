"""Values of entries, as rows of the ledger have them, and the ids of those that are looked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from instep.domain.identity import IdentityError, canonical_uri, document_id
from instep.domain.manifest import ManifestEntry, StorableEntries, fields_of

if TYPE_CHECKING:
    import pyarrow as pa


#: Entries whose values are Python objects at once.
_PORTION: Final = 100_000


def fields_in(
    entries: Sequence[Sequence[ManifestEntry]],
) -> tuple[Iterable[dict[str, Sequence[Any]]], pa.Table | None]:
    """The values of each field, a portion of the entries at a time. Of entries in columns by their ids, since so they
    are written; and as a table, if each is there once.
    """
    if all(isinstance(each, StorableEntries) for each in entries):
        from instep.document_state.entries import by_id, is_once

        ordered = by_id(entries)
        portions = (ordered[start : start + _PORTION] for start in range(0, len(ordered), _PORTION))
        return map(_fields, portions), ordered.table if is_once(ordered) else None
    columns: dict[str, list[Any]] = {name: [] for name in ManifestEntry._fields}
    for name, values in (each for some in entries for each in fields_of(some).items()):
        columns[name].extend(values)
    return [dict(columns)], None


def _fields(entries: Sequence[ManifestEntry]) -> dict[str, Sequence[Any]]:
    return dict(fields_of(entries))


def ids_of(uris: Iterable[Any]) -> Iterator[str]:
    """The ids of documents with these URIs, as far as they have one."""
    for uri in uris:
        with suppress(IdentityError):  # It was stored with other characters in place of some.
            yield document_id(canonical_uri(uri))
