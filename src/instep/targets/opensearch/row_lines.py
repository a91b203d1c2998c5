"""Rows as lines of bulk requests and back: whole batches of Arrow at a time, every value exactly."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.columns import TypeName
from instep.targets import table_target
from instep.targets.opensearch.bulk import ID_BYTES
from instep.targets.opensearch.row_layout import BASE, DELETED, INSTANCE, REF, VERSION, is_json
from instep.targets.table_target import TableSpec, Unfit, arrow_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Text in Arrow, one for each row.
Texts: TypeAlias = "pa.Array[Any]"

#: Lists and objects in each other in a text of JSON. Python reads and writes some 900, fewer from deep in a stack; the
#: servers take 20 of what they index.
MOST_LEVELS: Final = 500

#: In front of the digest of a key that is no id by itself.
_DIGEST = "sha256:"

_ODD = r'[\x00-\x1f"\\]'

_FLOATS = (TypeName.FLOAT32, TypeName.FLOAT64)


class Lines(NamedTuple):
    """Rows of a batch: their ids, and the line that each is in a request, behind the one that says what to do."""

    ids: list[str]
    sources: list[bytes]


def lines(spec: TableSpec, rows: pa.RecordBatch, fields: Mapping[str, Mapping[str, Any]], base: int) -> Lines:
    """`rows` are of the schema of `spec`; a deleted one has no columns but the scope: it goes with its namespace."""
    version: Texts = rows.column(table_target.VERSION).cast(pa.string())
    kept = _object(
        {
            **{name: _quoted(rows.column(own)) for name, own in _TEXTS.items()},
            VERSION: version,
            BASE: str(base),
        }
    )
    own = _object(
        {each.name: _json(rows.column(each.name), each.type.name, fields.get(each.name, {})) for each in spec.columns}
    )
    live = _joined("{", own, ",", kept, "}\n")
    gone: Any = rows.column(table_target.DELETED)
    if gone.true_count:
        if spec.scope:
            scope = _json(rows.column(spec.scope), TypeName.STRING, fields.get(spec.scope, {}))
            kept = _joined(_object({spec.scope: scope}), ",", kept)
        live = pc.if_else(gone, _joined("{", kept, f',"{DELETED}":true}}\n'), live)
    return Lines(ids(spec, rows), live.cast(pa.large_binary()).to_pylist())


_TEXTS: Mapping[str, str] = {REF: table_target.REF, INSTANCE: table_target.INSTANCE}


def ids(spec: TableSpec, rows: pa.RecordBatch) -> list[str]:
    """The ids of rows, by their keys: readable where that is possible. Of several columns with a slash between them."""
    columns: list[Any] = [_plain(rows.column(name), spec.type_of(name).name) for name in spec.key]
    if len(columns) > 1:
        columns = [pc.replace_substring(pc.replace_substring(each, "%", "%25"), "/", "%2F") for each in columns]
    joined: Any = pc.binary_join_element_wise(*columns, pa.scalar("/")) if len(columns) > 1 else columns[0]
    lengths: Any = pc.binary_length(joined)
    odd: Any = pc.or_(pc.greater(lengths, pa.scalar(ID_BYTES)), pc.equal(lengths, pa.scalar(0)))
    odd = pc.or_(odd, pc.starts_with(joined, _DIGEST))
    found: list[str] = joined.to_pylist()
    if odd.true_count:
        for at in np.flatnonzero(odd.to_numpy(zero_copy_only=False)).tolist():
            found[at] = _DIGEST + hashlib.sha256(found[at].encode()).hexdigest()
    return found


def id_of(spec: TableSpec, key: Sequence[Any]) -> str:
    schema = pa.schema([arrow_schema(spec).field(name) for name in spec.key])
    arrays = [pa.array([value], schema.field(name).type) for name, value in zip(spec.key, key, strict=True)]
    return ids(spec, pa.RecordBatch.from_arrays(arrays, schema=schema))[0]


def unfit(spec: TableSpec, rows: pa.RecordBatch, fields: Mapping[str, Mapping[str, Any]]) -> Iterator[Unfit]:
    """JSON has no NaN and no infinity; and what is to be an object has to be JSON."""
    for each in spec.columns:
        if each.name not in rows.schema.names:
            continue
        values: Any = rows.column(each.name)
        if each.type.name in _FLOATS:
            odd: Any = pc.invert(pc.fill_null(pc.is_finite(values), True))
            if odd.true_count:
                yield Unfit(each.name, _flags(odd), "a number that is NaN or infinite")
        elif each.type.name is TypeName.STRING and is_json(fields.get(each.name, {})):
            broken = np.array([not _is_object(value) for value in values.to_pylist()], bool)
            if broken.any():
                yield Unfit(each.name, broken, "text that is not a JSON object or a list of them")


def _flags(values: Any) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _is_object(text: str | None) -> bool:
    if text is None:
        return True
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return False
    objects = isinstance(value, dict) or (isinstance(value, list) and all(isinstance(each, dict) for each in value))
    return objects and _is_flat(value)


def _is_flat(value: Any) -> bool:
    """Whether it is nested no more than `MOST_LEVELS` deep, however deep the stack is when it is written."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [each for some in level for each in (some.values() if isinstance(some, dict) else some)]
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return True
    return False


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _object(members: Mapping[str, Texts | str]) -> Texts:
    """The members of an object, without its braces."""
    parts: list[Any] = []
    for number, (name, value) in enumerate(members.items()):
        parts += [f"{',' if number else ''}{json.dumps(name)}:", value]
    joined: Texts = _joined(*parts, nulls="null")
    return joined


def _joined(*parts: Texts | str, nulls: str | None = None) -> Any:
    """Texts behind each other; null if one of them is, unless that is written otherwise."""
    kind = pa.large_string()
    large: list[Any] = [pa.scalar(each, kind) if isinstance(each, str) else each.cast(kind) for each in parts]
    large.append(pa.scalar("", kind))
    if nulls is None:
        return pc.binary_join_element_wise(*large)
    return pc.binary_join_element_wise(*large, null_handling="replace", null_replacement=nulls)


def _json(values: Texts, kind: TypeName, field: Mapping[str, Any]) -> Texts:
    """Values as JSON; null stays null."""
    if kind is TypeName.STRING:
        if is_json(field):
            # On one line, and in one form.
            found = [None if each is None else json.dumps(json.loads(each)) for each in values.to_pylist()]
            return pa.array(found, pa.large_string())
        return _quoted(values)
    if kind in (TypeName.DECIMAL, TypeName.BYTES, TypeName.DATE, TypeName.TIMESTAMP):
        return _in_quotes(_plain(values, kind))
    return values.cast(pa.large_string())


def _plain(values: Texts, kind: TypeName) -> Texts:
    """Values as text: as they are in the JSON of a document, before quotes."""
    if kind is TypeName.BYTES:
        encoded = [None if each is None else base64.b64encode(each).decode() for each in values.to_pylist()]
        return pa.array(encoded, pa.string())
    texts: Any = values.cast(pa.string())
    found: Texts = pc.replace_substring(texts, " ", "T", max_replacements=1) if kind is TypeName.TIMESTAMP else texts
    return found


def _quoted(values: Texts) -> Texts:
    """Texts in quotes. Few have what JSON writes otherwise."""
    texts: Any = values.cast(pa.large_string())
    odd: Any = pc.fill_null(pc.match_substring_regex(texts, _ODD), False)
    if odd.true_count:
        written = [json.dumps(each, ensure_ascii=False)[1:-1] for each in texts.filter(odd).to_pylist()]
        texts = pc.replace_with_mask(texts, odd, pa.array(written, pa.large_string()))
    return _in_quotes(texts)


def _in_quotes(texts: Any) -> Texts:
    quoted: Texts = _joined('"', texts, '"')
    return quoted


# -- and back ----------------------------------------------------------------------------------


def table(spec: TableSpec, sources: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pa.Table:
    """Documents as rows: these columns of the spec, or its bookkeeping."""
    schema = pa.schema([arrow_schema(spec).field(name).with_nullable(True) for name in columns])
    arrays = []
    for name in columns:
        values: list[Any]
        if name == table_target.DELETED:
            values = [bool(each.get(DELETED)) for each in sources]
        else:
            kind, stored = spec.type_of(name).name, _STORED.get(name, name)
            values = [_value(each.get(stored), kind) for each in sources]
        arrays.append(pa.array(values, schema.field(name).type))
    return pa.table(arrays, schema=schema)


_STORED: Mapping[str, str] = {own: name for name, own in {**_TEXTS, VERSION: table_target.VERSION}.items()}


def stored_names(columns: Sequence[str]) -> list[str]:
    """The names of columns in a document."""
    return [DELETED if each == table_target.DELETED else _STORED.get(each, each) for each in columns]


def _value(value: Any, kind: TypeName) -> Any:
    if value is None:
        return None
    if kind in _READ:
        return _READ[kind](value)
    return json.dumps(value) if isinstance(value, dict | list) else value


_READ: Mapping[TypeName, Callable[[Any], Any]] = {
    TypeName.DECIMAL: Decimal,
    TypeName.BYTES: base64.b64decode,
    TypeName.DATE: date.fromisoformat,
    TypeName.TIMESTAMP: datetime.fromisoformat,
    TypeName.FLOAT32: float,
    TypeName.FLOAT64: float,
}
