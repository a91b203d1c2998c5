"""The fields of columns in OpenSearch and Elasticsearch, what a project declares over them, and their drift. Pure.

| column | field |
| --- | --- |
| bool, int32, int64, float32, float64 | boolean, integer, long, float, double |
| string | keyword; longer than `LONGEST_KEYWORD` it is kept, and not found by its value |
| decimal | double, for ranges and sums, and below it `exact`, a keyword; the document has all digits, as text |
| date, timestamp | date, which compares milliseconds; the document has the microseconds |
| bytes | binary: base64 in the document, not searched |
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from instep.domain.columns import Column, TypeName
from instep.errors import UserError
from instep.targets.opensearch.layout import BUILDING
from instep.targets.table_target import OWN, TableSpec, decode_specs, encode_specs

#: Lucene takes 32,766 bytes of a keyword, and a character has four at most.
LONGEST_KEYWORD: Final = 8_191

_KEYWORD: Final[Mapping[str, Any]] = {"type": "keyword", "ignore_above": LONGEST_KEYWORD}
_FIELDS: Final[Mapping[TypeName, Mapping[str, Any]]] = {
    TypeName.BOOL: {"type": "boolean"},
    TypeName.INT32: {"type": "integer"},
    TypeName.INT64: {"type": "long"},
    TypeName.FLOAT32: {"type": "float"},
    TypeName.FLOAT64: {"type": "double"},
    TypeName.DECIMAL: {"type": "double", "fields": {"exact": {"type": "keyword"}}},
    TypeName.STRING: _KEYWORD,
    TypeName.BYTES: {"type": "binary"},
    TypeName.DATE: {"type": "date", "format": "strict_date"},
    TypeName.TIMESTAMP: {"type": "date"},
}

#: Fields of what is kept of each row beside its columns. `base`: what the index had when its wave began. A row that is
#: deleted is a document without columns; one that was `swept` at this moment (ms) will be dropped.
REF, INSTANCE, VERSION = "instep_ref", "instep_instance", "instep_version"
BASE, DELETED, SWEPT = "instep_base", "instep_deleted", "instep_swept"
_PREFIX: Final = "instep_"
_UNSEARCHED: Final[Mapping[str, Any]] = {"index": False, "doc_values": False}
_KEPT: Final[Mapping[str, Mapping[str, Any]]] = {
    REF: {"type": "keyword", **_UNSEARCHED},
    INSTANCE: {"type": "keyword"},
    VERSION: {"type": "long", **_UNSEARCHED},
    BASE: {"type": "long", **_UNSEARCHED},
    DELETED: {"type": "boolean"},
    SWEPT: {"type": "date", "format": "epoch_millis"},
}

#: The condition of rows that a reader finds: the alias has it, too.
THERE: Final[Mapping[str, Any]] = {"bool": {"must_not": [{"term": {DELETED: True}}]}}


def there(*more: Mapping[str, Any], besides: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The query for rows that a reader finds and that have more than that; `besides`: what they have not."""
    return {"bool": {"filter": list(more), "must_not": [*THERE["bool"]["must_not"], *besides]}}


def kept(*more: Mapping[str, Any]) -> dict[str, Any]:
    """The query for rows that are there, or are remembered as deleted, and that have more than that."""
    return {"bool": {"filter": list(more), "must_not": [{"exists": {"field": SWEPT}}]}}


def below(column: str, prefix: str) -> dict[str, Any]:
    return {"prefix": {column: prefix}}


def of_instance(instance: str) -> dict[str, Any]:
    return {"term": {INSTANCE: instance}}


#: Parts of a mapping that the project declares. `properties`: of columns, by name, over what they are by themselves.
PARTS: Final = ("properties", "analysis", "settings")
#: Settings that are Instep's to say.
_OWN_SETTINGS: Final = ("refresh_interval", "gc_deletes", "analysis")

#: What `_meta` of an own table has.
_SPECS, _DECLARED = "instep_specs", "instep_mapping"

Declared = Mapping[str, Any]


def checked(specs: Sequence[TableSpec], declared: Declared, place: str | None = None) -> None:
    """Check that the columns can be fields, and that what is declared is of columns that are there."""
    for spec in specs:
        for each in spec.columns:
            if each.name.startswith(_PREFIX):
                raise UserError(
                    f"{spec}: column {each.name!r} has a name that is Instep's in this index",
                    hint="Give it another: in `sql`, or in the `properties` of the node.",
                )
            if not each.name or "." in each.name:
                raise UserError(
                    f"{spec}: column {each.name!r} cannot be a field: a dot stands between a field and one below it",
                    hint="Give it another name: in `sql`, or in the `properties` of the node.",
                )
    own = next(each for each in specs if each.kind == OWN)
    names = [each.name for each in own.columns]
    for name, field in declared.get("properties", {}).items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}."
            raise UserError(f"mapping: there is no column {name!r}", where=place, hint=hint)
        if name == own.scope and field.get("type", "keyword") != "keyword":
            raise UserError(f"mapping: {name!r} is the column of the namespace, and stays a keyword", where=place)
    for name in declared.get("settings", {}):
        if name.removeprefix("index.") in _OWN_SETTINGS:
            raise UserError(f"mapping: the setting {name!r} is Instep's to make", where=place, hint="Leave it out.")


def fields(spec: TableSpec, declared: Declared) -> dict[str, dict[str, Any]]:
    """The fields of the columns, as an index is made with."""
    said: Mapping[str, Any] = declared.get("properties", {}) if spec.kind == OWN else {}
    return {each.name: _field(each, said.get(each.name)) for each in spec.columns}


def _field(column: Column, said: Mapping[str, Any] | None) -> dict[str, Any]:
    """The field of a column. All of what is declared counts when it names another type, else what it names."""
    own = dict(_FIELDS[column.type.name])
    if said is None:
        return own
    return dict(said) if said.get("type", own["type"]) != own["type"] or "properties" in said else {**own, **said}


def is_json(field: Mapping[str, Any]) -> bool:
    """True if the text of a column is JSON that becomes an object of the document."""
    return field.get("type") in ("object", "nested", "flat_object", "flattened") or "properties" in field


def index(specs: Sequence[TableSpec], spec: TableSpec, declared: Declared) -> dict[str, Any]:
    """The body that makes the index of one table."""
    settings: dict[str, Any] = {"index": {**declared.get("settings", {}), **BUILDING}}
    if spec.kind == OWN and "analysis" in declared:
        settings["analysis"] = declared["analysis"]
    mappings: dict[str, Any] = {
        "dynamic": "strict",
        "properties": {**fields(spec, declared), **_KEPT},
    }
    if spec.kind == OWN:
        mappings["_meta"] = {_SPECS: encode_specs(specs), _DECLARED: json.dumps(declared, sort_keys=True)}
    return {"settings": settings, "mappings": mappings}


def stored(mappings: Mapping[str, Any]) -> tuple[tuple[TableSpec, ...], Declared] | None:
    """The tables of an index and what was declared of them, by the mappings of its own table; None: it is no index of
    rows.
    """
    meta = mappings.get("_meta") or {}
    if _SPECS not in meta:
        return None
    return decode_specs(meta[_SPECS]), json.loads(meta[_DECLARED])


def expected(spec: TableSpec, declared: Declared) -> dict[str, str]:
    """The columns as they should be, in words."""
    made = fields(spec, declared)
    return {each.name: f"{each.type} as {_text(made[each.name])}" for each in spec.columns}


def found(spec: TableSpec, declared: Declared, wanted: TableSpec | None, mappings: Mapping[str, Any]) -> dict[str, str]:
    """The same of columns as they are. What a field is made with by default is not in the server's answer, and the rest
    may be written otherwise (`"copy_to": ["all"]`, `100.0`): what was declared as it is now when the index was made, is
    so.
    """
    kept = stored(mappings)
    made = fields(wanted, kept[1]) if wanted and kept else {}
    there: Mapping[str, Any] = mappings.get("properties", {})
    types = {each.name: each.type for each in spec.columns}
    asked = fields(wanted, declared) if wanted else {}
    said: dict[str, str] = {}
    for name, field in there.items():
        if name.startswith(_PREFIX):
            continue
        means = asked.get(name, {})
        then = made.get(name, {})
        shown = {"type": field.get("type")}
        if means:
            shown = {key: value if then.get(key) == value else field.get(key, value) for key, value in means.items()}
        shown["type"] = field.get("type", means.get("type", "object"))
        if "properties" in shown:
            shown["properties"] = means.get("properties")
        if "fields" in shown:
            shown["fields"] = {
                key: {**value, "type": field.get("fields", {}).get(key, {}).get("type")}
                for key, value in means["fields"].items()
            }
        said[name] = f"{types.get(name, 'unknown')} as {_text({key: shown[key] for key in means or shown})}"
    return said


def _text(field: Mapping[str, Any]) -> str:
    kind = str(field.get("type", "object"))
    more = {key: value for key, value in field.items() if key != "type" and value != _DEFAULTS.get(key)}
    return f"{kind} {json.dumps(more, sort_keys=True)}" if more else kind


#: Not worth a word.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "ignore_above": LONGEST_KEYWORD,
    "format": "strict_date",
    "fields": {"exact": {"type": "keyword"}},
}
