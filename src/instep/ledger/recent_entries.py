"""Entries that this process has recorded a moment ago: a base file is made of them without reading them back."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from instep.ledger.base_form import BASE

if TYPE_CHECKING:
    import pyarrow as pa

#: So many are kept at most: 100 bytes each, about.
MOST: Final = 2_000_000
#: Of so many revisions at most: those of a worker that goes on for weeks soon cost more than a look at the ledger.
REVISIONS: Final = 100


class Written(NamedTuple):
    """The entries (by their ids, each once) with which a transaction made a revision of an instance's manifest. None:
    it removed some, too.
    """

    instance: str
    revision: int
    entries: pa.Table | None


class RecentEntries:
    """Entries that transactions of this process have written, of one instance at a time. Whatever it does not know for
    certain (another process has written, a reply was lost), it does not tell. May be shared by threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._instance: str | None = None
        #: None: one of them is missing, and until the next base the others say nothing.
        self._revisions: dict[int, pa.Table] | None = {}

    def keep(self, instance: str) -> None:
        """Keep what is written of this instance from here on."""
        with self._lock:
            if instance != self._instance:
                self._instance, self._revisions = instance, {}

    def note(self, written: Written) -> None:
        """Note what a committed transaction has written."""
        with self._lock:
            if written.instance != self._instance or self._revisions is None:
                return
            if written.entries is not None:
                self._revisions[written.revision] = written.entries.select(list(BASE))
            many = len(self._revisions) > REVISIONS
            if many or written.entries is None or sum(each.num_rows for each in self._revisions.values()) > MOST:
                self._revisions = None

    def between(self, instance: str, after: int, last: int) -> pa.Table | None:
        """The entries of all revisions after one and up to another, as they are by then; None if not all are known."""
        with self._lock:
            known = (self._revisions or {}) if instance == self._instance else {}
            found = [known.get(each) for each in range(after + 1, last + 1)]
        tables = [each for each in found if each is not None]
        if not tables or len(tables) < len(found):
            return None
        return tables[0] if len(tables) == 1 else _last_of_each(tables)

    def forget(self, instance: str) -> None:
        with self._lock:
            if instance == self._instance:
                self._instance, self._revisions = None, {}


def _last_of_each(tables: Sequence[pa.Table]) -> pa.Table:
    """The entries of all tables; of a document that is in several, the last one. All are looked at once."""
    import numpy as np
    import pyarrow as pa

    entries = pa.concat_tables(tables)
    ids: Any = entries["document_id"].combine_chunks()
    numbers = ids.dictionary_encode().indices.to_numpy()
    last = np.zeros(numbers.max(initial=-1) + 1, np.int64)
    last[numbers] = np.arange(len(numbers))
    places: Any = pa.array(last)
    return entries if len(last) == len(numbers) else entries.take(places)


def replaced(entries: pa.Table, later: pa.Table) -> pa.Table:
    """Entries, or in their place those that were written later."""
    import pyarrow as pa

    return pa.concat_tables([without(entries, later), later])


def without(entries: pa.Table, gone: pa.Table) -> pa.Table:
    """The entries but for those with the ids of others."""
    import pyarrow.compute as pc

    if not gone.num_rows:
        return entries
    found: Any = pc.is_in(entries["document_id"], value_set=gone["document_id"])
    return entries.filter(pc.invert(found))
