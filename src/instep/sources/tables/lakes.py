"""Common to tables that keep versions of themselves (Delta, Iceberg): types, last changes of keys, reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from instep.domain.texts import without
from instep.sources.tables.spark_reading import without_secrets

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_LIMIT: Final = 300
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
#: What Rust's libraries put before a reason, layer by layer.
_LAYERS: Final = re.compile(
    r"^(?:(?:Kernel|External|Generic delta kernel|Parquet|Arrow|C Data interface|Object Store|Generic) error:? )+"
)


class SignedRows(NamedTuple):
    """Rows of a change: 1 for each that came, -1 for each that went. One that was changed went, and came."""

    rows: pa.RecordBatch
    signs: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Reasons:
    """The words of a library, in one line and without secrets."""

    options: Mapping[str, str]

    def of(self, error: BaseException) -> str:
        text = " ".join(_COLOURS.sub("", str(error)).replace("↳", "").split())
        text = without(text, *self.options.values())
        return without_secrets(_LAYERS.sub("", text), {})[:_LIMIT] or type(error).__name__


def last_changes(uris: Any, orders: Any) -> Any:
    """Flags of the changes that are the last of their documents: of the greatest order (`LakeTable.changed`)."""
    import numpy as np
    import pyarrow as pa

    coded: Any = uris.dictionary_encode()
    codes, numbers = coded.indices.to_numpy(), orders.to_numpy()
    latest = np.full(len(coded.dictionary), -1, np.int64)
    np.maximum.at(latest, codes, numbers)
    return pa.array(numbers == latest[codes])


def is_there(orders: Any) -> Any:
    """Whether these changes leave a row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.equal(pc.bit_wise_and(orders, pa.scalar(1)), pa.scalar(1))


def plain(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Batches with text and bytes in the types that all of Arrow's functions take."""
    import pyarrow as pa

    for each in batches:
        batch: pa.RecordBatch = pa.record_batch(each)
        schema: Any = plain_schema(batch.schema)
        yield batch if schema.equals(batch.schema) else batch.cast(schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind) else kind
