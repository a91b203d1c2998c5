"""Documents that a build would take away from those served, in columns: the rules of `domain.promotion_rules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.difference import named_now, places
from instep.domain.promotion_rules import Tally


def tally(served: pa.Table, listed: pa.Table, failed: pa.Array[Any]) -> Tally:
    """See `Tally`. `served` and `listed` have URIs and versions, `failed` are the URIs of those that failed."""
    uris: Any = listed["uri"]
    at = places(named_now(served["uri"], uris), uris)
    there = np.flatnonzero(at >= 0)
    of_listing: Any = pa.array(at[there])
    bad = places(uris, failed) >= 0
    of_served: Any = pa.array(there)
    same: Any = pc.equal(served["version"].take(of_served), listed["version"].take(of_listing))
    kept = np.asarray(same.to_numpy(), bool)
    failing = bad[at[there]]
    return Tally(
        *(len(uris), int(np.count_nonzero(bad))),
        *(len(there), int(np.count_nonzero(failing))),
        *(int(np.count_nonzero(kept)), int(np.count_nonzero(kept & failing))),
    )


def failing(listed: pa.Table, failures: Mapping[str, str]) -> pa.Array[Any]:
    """The URIs of those that have failed at the version at which they are listed."""
    uris: Any = pa.array(list(failures), pa.string())
    versions: Any = pa.array(list(failures.values()), pa.string())
    at = places(listed["uri"], uris)
    there = np.flatnonzero(at >= 0)
    of_listing: Any = pa.array(there)
    of_failures: Any = pa.array(at[there])
    same: Any = pc.equal(listed["version"].take(of_listing).combine_chunks(), versions.take(of_failures))
    return listed["uri"].take(of_listing).combine_chunks().filter(same)


def missing(served: Any, kept: Any) -> int:
    """The number of served documents that are not among these URIs."""
    return int(np.count_nonzero(places(named_now(served, kept), kept) < 0))


class Emptied(NamedTuple):
    """Documents that are served with chunks and have none in a build; those of them that have bytes; and the chunks
    that served documents would lose.
    """

    documents: int = 0
    blank: int = 0
    chunks: int = 0

    def plus(self, other: Emptied) -> Emptied:
        return Emptied(*(here + there for here, there in zip(self, other, strict=True)))


def emptied(served: pa.Table, built: pa.Table) -> Emptied:
    """Compare the documents that are in both."""
    at = places(served["uri"], built["uri"])
    there = np.flatnonzero(at >= 0)
    of_served: Any = pa.array(there)
    of_build: Any = pa.array(at[there])
    before = _numbers(served["chunks"].take(of_served))
    after, sizes = (_numbers(built[name].take(of_build)) for name in ("chunks", "size"))
    empty = (before > 0) & (after == 0)
    return Emptied(
        int(np.count_nonzero(empty)),
        int(np.count_nonzero(empty & (sizes != 0))),
        int(np.maximum(0, before - after).sum()),
    )


def _numbers(column: Any) -> Any:
    return np.asarray(column.to_numpy(), np.int64)
