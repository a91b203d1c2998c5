"""Facts about the rows that a query over files gives, known without asking it."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

#: How the names of functions begin that say other things of the same rows.
_MOVING: Final = (
    *("AI", "Current", "Generat", "Input", "Local", "ML", "Monotonic", "NextValue", "Normal", "Predict", "Rand"),
    *("Reflect", "Secret", "Session", "Shuffle", "SparkPartition", "Sys", "Uniform", "Utc", "Uuid", "Zipf"),
)
#: A text that Spark takes for a moment, where one is wanted: `DATE 'today'`, `at > 'yesterday'`.
_MOMENT: Final = re.compile(r"\s*(?:now|today|tomorrow|yesterday)(?![^\W\d_])", re.IGNORECASE)
#: Names that are none of a column, if there is no such column.
_CLOCKS: Final = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})


@cache
def is_row_wise(sql: str) -> bool:
    """Whether each row that the query gives comes of one row of `source`, whatever other rows there are. False for what
    is not understood.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        query = sqlglot.parse_one(sql.strip().rstrip(";"), dialect="spark")
    except SqlglotError:
        return False
    if not isinstance(query, exp.Select):
        return False
    tables = list(query.find_all(exp.Table))
    if len(tables) != 1 or tables[0].name.lower() != "source" or tables[0].db:
        return False
    together = (exp.AggFunc, exp.Window, exp.Subquery, exp.Join, exp.Lateral, exp.With, exp.TableSample)
    if any(query.args.get(each) for each in ("group", "having", "distinct", "limit", "offset", "qualify", "sample")):
        return False
    if len(list(query.find_all(exp.Select))) != 1 or any(True for _ in query.find_all(*together)):
        return False
    # A function that is not known here could put all rows together, but not beside a column.
    return any(_plain(each.unalias()) for each in query.expressions)


@cache
def is_deterministic(sql: str) -> bool:
    """Whether the query gives the same rows of the same files at any time. False for what is not understood."""
    if not is_row_wise(sql):
        return False
    import sqlglot
    from sqlglot import exp

    query = sqlglot.parse_one(sql.strip().rstrip(";"), dialect="spark")
    # What stands for them is said elsewhere: `${name}` by the session.
    if any(True for _ in query.find_all(exp.Anonymous, exp.Parameter, exp.Placeholder)):
        return False
    if any(each.is_string and _MOMENT.match(each.name) for each in query.find_all(exp.Literal)):
        return False
    if any(each.name.lower() in _CLOCKS for each in query.find_all(exp.Column)):
        return False
    return not any(type(each).__name__.startswith(_MOVING) for each in query.find_all(exp.Func))


def _plain(expression: object) -> bool:
    from sqlglot import exp

    if isinstance(expression, exp.Cast):
        expression = expression.this
    return isinstance(expression, exp.Column | exp.Star)
