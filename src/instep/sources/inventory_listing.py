"""The documents of a source in the lines of an inventory, in columns, named as a listing names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.percent import encoded
from instep.document_state.columns import ListedColumns, listed_schema
from instep.domain.storable import LONGEST_VERSION, storable_version
from instep.sources.globs import Globs
from instep.sources.s3_inventory import Damaged
from instep.sources.url_files import UrlRoot


def listed(
    objects: Iterable[pa.Table],
    roots: Sequence[UrlRoot],
    include: Globs,
    exclude: Globs,
    progress: Callable[[int], None],
) -> ListedColumns:
    """The documents below these roots, sorted by URI, each once. Raises `Damaged` if there is nothing below a root: the
    inventory may be of other objects.
    """
    finders = [_Finder(root, include, exclude) for root in roots]
    found: list[pa.Table] = []
    for some in objects:
        found += (part for finder in finders for part in finder.found(some))
        progress(sum(each.num_rows for each in found))
    for finder in finders:
        if not finder.met:
            raise Damaged(f"it has nothing in {finder.root.base}")
    table = pa.concat_tables([listed_schema().empty_table(), *found]).sort_by("uri")
    if len(roots) > 1:
        table = _once(table)
    return ListedColumns(table)


class _Finder:
    """Finds what is below one root. `met`: there was something."""

    def __init__(self, root: UrlRoot, include: Globs, exclude: Globs) -> None:
        self.root = root
        self.met = False
        self._include, self._exclude = include, exclude
        _, self._key = root.prefix()

    def found(self, objects: pa.Table) -> Iterator[pa.Table]:
        """The documents among some objects. A root that is an object itself is taken as it is."""
        keys: Any = objects["key"]
        if self._key:
            itself = objects.filter(pc.equal(keys, pa.scalar(self._key)))
            self.met |= itself.num_rows > 0
            yield _documents(itself, pa.repeat(self.root.base, itself.num_rows))
        below = objects.filter(pc.starts_with(keys, f"{self._key}/")) if self._key else objects
        self.met |= below.num_rows > 0
        # Consoles and copies make an object of a folder: a listing leaves it out.
        below = below.filter(pc.invert(pc.ends_with(below["key"], "/")))
        for batch in below.to_batches():
            inner: Any = pc.utf8_slice_codeunits(batch["key"], len(self._key) + 1 if self._key else 0)
            paths: Any = pc.utf8_ltrim(inner, "/")
            taken: Any = pa.repeat(True, len(paths))
            if self._include:
                taken = self._include.match_all(paths)
            if self._exclude:
                taken = pc.and_not(taken, self._exclude.match_all(paths))
            names, base = encoded(inner.filter(taken)), f"{self.root.base.rstrip('/')}/"
            uris = pc.binary_join_element_wise(pa.repeat(base, len(names)), names, "")
            yield _documents(pa.Table.from_batches([batch.filter(taken)]), uris)


def _documents(objects: pa.Table, uris: Any) -> pa.Table:
    versions: Any = objects["e_tag"].combine_chunks()
    versions = pc.utf8_trim(versions, '"')
    long: Any = pc.greater(pc.utf8_length(versions), pa.scalar(LONGEST_VERSION))
    if pc.any(long).as_py():
        told = [storable_version(each) for each in versions.filter(long).to_pylist()]
        versions = pc.replace_with_mask(versions, long, pa.array(told, pa.string()))
    columns = [uris, objects["size"], versions, pa.repeat("", objects.num_rows)]
    return pa.Table.from_arrays(columns, schema=listed_schema())


def _once(table: pa.Table) -> pa.Table:
    """The first of those that have the same URI, which stand one behind the other."""
    if table.num_rows < 2:
        return table
    uris: Any = table["uri"].combine_chunks()
    differs = pc.not_equal(uris.slice(1), uris.slice(0, len(uris) - 1))
    return table.filter(pa.concat_arrays([pa.array([True]), differs]))
