"""The rules of offers, for numbers and for SQL. A row of an offer is merged by maximum with others of its key, whenever
ClickHouse likes, and is dropped when it is spent, whether or not all rows of its key were merged by then.

A row has the registers of the covers, and one of its own, `offer`: the version by which a row of the source offered
the key, or an event that took a cover back; even, and one more once somebody withdrew it.

A key that is pending is offered, whatever was merged or dropped. Its covers' latest events are uncovering ones (even
registers), or there were none. A row is spent only if it has no even register of a cover, so the latest event of a
cover is not lost if it uncovered, and stands above all older ones; and it brought an offer with it. Without any event
of a cover, no row of the source's offers is spent, unless somebody withdrew the key.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def is_offered(offer: int, covers: Sequence[int]) -> bool:
    """A key, by its merged row."""
    return offer > 0 and not offer & 1 and not any(each & 1 for each in covers)


def is_spent(offer: int, covers: Sequence[int]) -> bool:
    """A row: it offers nothing, and it stands above nothing that would hide an offer."""
    return not is_offered(offer, covers) and all(each & 1 or not each for each in covers)


def offered(offers: "npt.NDArray[np.uint64]", covers: Sequence["npt.NDArray[np.uint64]"]) -> Any:
    """`is_offered`, of many merged rows."""
    return (offers > 0) & (reduce(or_, covers, offers) & 1 == 0)


def spent(offers: "npt.NDArray[np.uint64]", covers: Sequence["npt.NDArray[np.uint64]"]) -> Any:
    """`is_spent`, of many merged rows."""
    none_even = reduce(and_, ((each == 0) | (each & 1 == 1) for each in covers))
    return ~offered(offers, covers) & none_even


def offered_sql(offer: str, covers: Sequence[str]) -> str:
    joined = reduce(lambda one, other: f"bitOr({one}, {other})", covers, offer)
    return f"({offer} > 0 AND bitAnd({joined}, 1) = 0)"


def spent_sql(offer: str, covers: Sequence[str]) -> str:
    none_even = " AND ".join(f"({each} = 0 OR bitAnd({each}, 1) = 1)" for each in covers)
    return f"(NOT {offered_sql(offer, covers)} AND {none_even})"
