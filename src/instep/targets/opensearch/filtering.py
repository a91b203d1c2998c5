"""Conditions as queries of OpenSearch and Elasticsearch."""

from __future__ import annotations

from typing import Any, Final

from instep.domain.document_columns import DocumentColumn
from instep.domain.filters import All, Condition, Contains, Either, IsNull, OneOf, Order, Ordered, Prefix, number
from instep.targets.opensearch.layout import TITLE

_ORDERS: Final = {Order.LESS: "lt", Order.AT_MOST: "lte", Order.MORE: "gt", Order.AT_LEAST: "gte"}


def query(condition: Condition) -> dict[str, Any]:
    """A query, without a score, for the rows that a condition holds for."""
    match condition:
        case All(conditions):
            return {"bool": {"filter": [query(each) for each in conditions]}}
        case Either(conditions):
            return {"bool": {"should": [query(each) for each in conditions], "minimum_should_match": 1}}
        case OneOf(column, values, negated) | Contains(column, values, negated):
            # A list is found by each of its elements.
            return _unless(negated, column, {"terms": {_field(column): [number(each) for each in values]}})
        case Ordered(column, order, value):
            return {"range": {_field(column): {_ORDERS[order]: number(value)}}}
        case Prefix(column, prefix, negated):
            return _unless(negated, column, {"prefix": {_field(column): {"value": prefix}}})
        case IsNull(column, negated):
            return _there(column) if negated else {"bool": {"must_not": [_there(column)]}}


def _unless(negated: bool, column: DocumentColumn, found: dict[str, Any]) -> dict[str, Any]:
    return {"bool": {"filter": [_there(column)], "must_not": [found]}} if negated else found


def _there(column: DocumentColumn) -> dict[str, Any]:
    return {"exists": {"field": _field(column)}}


def _field(column: DocumentColumn) -> str:
    """The words of a title are one field, the whole of it is another."""
    return TITLE if column.name == "title" else column.name
