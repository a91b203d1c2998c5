"""Keys that URIs of rows name, for many at once: a key of one number is read in columns, others one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast, overload

import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.columns import ColumnType, TypeName
from instep.domain.keys import Key, KeyValue
from instep.domain.rows import row_key

#: A number as a URI has it, short enough for 64 bits.
_NUMBER: Final = r"^table://[^/]*/(?P<number>0|-?[1-9][0-9]{0,17})$"
_NUMBERS: Final = (TypeName.INT32, TypeName.INT64)


class NumberKeys(Sequence[Key]):
    """Keys of one number each. They become objects only where they are looked at."""

    def __init__(self, numbers: pa.Array[Any]) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int, /) -> Key: ...

    @overload
    def __getitem__(self, at: slice[Any, Any, Any], /) -> NumberKeys: ...

    def __getitem__(self, at: int | slice[Any, Any, Any], /) -> Key | NumberKeys:
        return NumberKeys(self.numbers[at]) if isinstance(at, slice) else Key((self.numbers[at].as_py(),))


def row_keys(uris: pa.ChunkedArray[Any], types: Sequence[ColumnType]) -> Sequence[Key]:
    """The keys that URIs name, in columns of these types; none for one of which there can be no such row."""
    if len(types) == 1 and types[0].name in _NUMBERS:
        read: Any = pc.extract_regex(uris, _NUMBER)
        if not read.null_count:
            return NumberKeys(pc.struct_field(read, "number").cast(pa.int64()).combine_chunks())
    return [key for key in (row_key(str(uri), types) for uri in uris.to_pylist()) if key is not None]


def values_at(keys: Sequence[Key], at: int = 0) -> list[KeyValue]:
    """The values of a column of keys, each once and in order."""
    if isinstance(keys, NumberKeys):
        numbers: Any = pc.unique(keys.numbers)
        return cast("list[KeyValue]", numbers.take(pc.sort_indices(numbers)).to_pylist())
    values: set[Any] = {key.values[at] for key in keys}
    return sorted(values)
