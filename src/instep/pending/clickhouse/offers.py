"""The rules of offers, for numbers and for SQL. A row of an offer is merged by maximum with others of its key, whenever
ClickHouse likes, and is dropped when it is spent, whether or not all rows of its key were merged by then.

A key that is pending is offered, whatever was merged or dropped. Its covers' latest events are uncovering ones (even
registers), or there were none. A row is spent only if it has no even register of a cover, so the latest event of a
cover is not lost if it uncovered, and stands above all older ones; and it brought an offer with it. Without any event
of a cover, no row of the source's offers is spent, unless somebody withdrew the key.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def is_offered(offer: int, registers: Sequence[int]) -> bool:
    """A key, by its merged row."""
    return offer > 0 and not (offer | _joined(registers)) & 1


def is_spent(offer: int, registers: Sequence[int]) -> bool:
    """A row: it offers nothing, and it stands above nothing that would hide an offer."""
    return not is_offered(offer, registers) and all(each & 1 or not each for each in registers)


def offered(offers: "npt.NDArray[np.uint64]", registers: Sequence["npt.NDArray[np.uint64]"]) -> Any:
    """`is_offered`, of many merged rows."""
    joined = offers.copy()
    for each in registers:
        joined |= each
    return (offers > 0) & ((joined & 1) == 0)


def offered_sql(offer: str, registers: Sequence[str]) -> str:
    return f"({offer} > 0 AND bitAnd({_joined_sql([offer, *registers])}, 1) = 0)"


def spent_sql(offer: str, registers: Sequence[str]) -> str:
    none_even = " AND ".join(f"({each} = 0 OR bitAnd({each}, 1) = 1)" for each in registers)
    return f"(NOT {offered_sql(offer, registers)} AND {none_even})"


def _joined(registers: Sequence[int]) -> int:
    joined = 0
    for each in registers:
        joined |= each
    return joined


def _joined_sql(names: Sequence[str]) -> str:
    joined = names[0]
    for each in names[1:]:
        joined = f"bitOr({joined}, {each})"
    return joined
