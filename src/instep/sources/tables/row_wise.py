"""Facts about the rows that a query over files gives, known without asking it."""

from __future__ import annotations

from functools import cache


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

    moving = (exp.Anonymous, exp.Rand, exp.Randn, exp.Shuffle, exp.Uuid)
    functions = sqlglot.parse_one(sql.strip().rstrip(";"), dialect="spark").find_all(exp.Func)
    return not any(
        isinstance(each, moving) or type(each).__name__.startswith(("Current", "Local")) for each in functions
    )


def _plain(expression: object) -> bool:
    from sqlglot import exp

    if isinstance(expression, exp.Cast):
        expression = expression.this
    return isinstance(expression, exp.Column | exp.Star)
