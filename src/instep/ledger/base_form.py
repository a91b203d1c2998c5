"""The form of base files: which columns they have, and of which types.

A file says the number of its form; those of the first said none, and had ids as text. They are read, and written anew
at the next compaction. A file of a form that is not known here counts as lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns of a base, which is in the order of the URIs: so are listings of tables.
BASE: Final = ("document_id", "uri", "size", "version", "chunks")

_FORM: Final = 2
_KEY: Final = b"instep.form"
_ID: Final = "document_id"


def known(table: pa.Table | None) -> pa.Table | None:
    """The content of a file, if its form is known."""
    return table if table is not None and 1 <= _form(table) <= _FORM else None


def current(table: pa.Table) -> bool:
    return _form(table) == _FORM


def packed(table: pa.Table) -> pa.Table | None:
    """Entries in this form: ids are the 32 bytes that they say in hex. None if one of them is no such id."""
    if current(table):
        return table
    from instep.document_state.identities import as_digests

    digests = as_digests(table[_ID])
    if digests is None:
        return None
    packed = table.set_column(table.schema.get_field_index(_ID), _ID, digests)
    return packed.replace_schema_metadata({_KEY: str(_FORM)})


def unpacked(table: pa.Table) -> pa.Table:
    """Some columns in this form as those of entries."""
    table, at = table.replace_schema_metadata(None), table.schema.get_field_index(_ID)
    if at < 0:
        return table
    from instep.document_state.identities import as_ids

    return table.set_column(at, _ID, as_ids(table[_ID]))


def _form(table: pa.Table) -> int:
    return int((table.schema.metadata or {}).get(_KEY, b"1"))
