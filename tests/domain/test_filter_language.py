"""What a filter may say, and what is said about one that means nothing."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime

import pytest

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filter_language import MAX_LENGTH, MAX_ORDERED, parsed
from instep.domain.filters import (
    All,
    Condition,
    Contains,
    Either,
    FilterError,
    IsNull,
    OneOf,
    Order,
    Ordered,
    Prefix,
    columns_of,
)

COLUMNS = {
    name: DocumentColumn(name, DocumentColumnType(kind))
    for name, kind in {
        "team": "string",
        "year": "int",
        "score": "float",
        "open": "bool",
        "at": "timestamp",
        "day": "date",
        "tags": "string[]",
        "numbers": "int[]",
        # Words of SQL.
        "order": "int",
        "date": "date",
        "select": "string",
        "contains": "string",
        "case": "int",
    }.items()
}
TEAM, YEAR, SCORE, OPEN, AT, DAY, TAGS = list(COLUMNS.values())[:7]


def read(text: str) -> Condition:
    return parsed(text, COLUMNS.values())


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("team = 'ops'", OneOf(TEAM, ("ops",))),
        ("\"team\" <> 'it''s \\ \"x\"'", OneOf(TEAM, ('it\'s \\ "x"',), negated=True)),
        ("year >= -9223372036854775808", Ordered(YEAR, Order.AT_LEAST, -(2**63))),
        ("score < 1e3", Ordered(SCORE, Order.LESS, 1000.0)),
        ("score = 2", OneOf(SCORE, (2.0,))),
        ("open = true", OneOf(OPEN, (True,))),
        ("year in (1, 2, 1)", OneOf(YEAR, (1, 2))),
        ("year NOT IN (1)", OneOf(YEAR, (1,), negated=True)),
        ("team LIKE 'a\\%\\_\\\\%'", Prefix(TEAM, "a%_\\")),
        ("team NOT LIKE 'a%'", Prefix(TEAM, "a", negated=True)),
        ("team LIKE '%'", Prefix(TEAM, "")),
        ("team LIKE 'a'", OneOf(TEAM, ("a",))),
        ("tags CONTAINS 'urgent'", Contains(TAGS, ("urgent",))),
        ("tags not contains 'urgent'", Contains(TAGS, ("urgent",), negated=True)),
        ("team IS NULL", IsNull(TEAM)),
        ("NOT team IS NOT NULL", IsNull(TEAM)),
        ("at > '2024-05-01T10:00:00.000001+02:00'", Ordered(AT, Order.MORE, datetime(2024, 5, 1, 8, 0, 0, 1, UTC))),
        ("at = '2024-05-01'", OneOf(AT, (datetime(2024, 5, 1, tzinfo=UTC),))),
        ("at = '2024-05-01 08:00'", OneOf(AT, (datetime(2024, 5, 1, 8, tzinfo=UTC),))),
        ("day <= '2024-05-01'", Ordered(DAY, Order.AT_MOST, date(2024, 5, 1))),
        (
            "year BETWEEN 1 AND 2 AND team = 'a'",
            All((Ordered(YEAR, Order.AT_LEAST, 1), Ordered(YEAR, Order.AT_MOST, 2), OneOf(TEAM, ("a",)))),
        ),
        (
            "NOT (year > 1 AND (team = 'a' OR team IS NULL))",
            Either(
                (Ordered(YEAR, Order.AT_MOST, 1), All((OneOf(TEAM, ("a",), negated=True), IsNull(TEAM, negated=True))))
            ),
        ),
        (
            "team = 'a' OR team = 'b' AND year = 1",
            Either((OneOf(TEAM, ("a",)), All((OneOf(TEAM, ("b",)), OneOf(YEAR, (1,)))))),
        ),
        ("NOT team = 'a' AND year = 1", All((OneOf(TEAM, ("a",), negated=True), OneOf(YEAR, (1,))))),
    ],
)
def test_what_a_filter_means(text: str, means: Condition) -> None:
    assert read(text) == means


def test_columns_may_be_called_like_words_of_sql() -> None:
    text = "order = 1 AND date > '2024-01-01' AND select = 'x' AND contains LIKE 'y%' AND case IN (1)"
    assert {each.name for each in columns_of(read(text))} == {"order", "date", "select", "contains", "case"}


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("", 1, "empty"),
        ("tean = 'x'", 1, "did you mean team?"),
        ("year = 1 AND Team = 'x'", 14, "did you mean team?"),
        ("year = 1 AND team = year", 21, "'year' is not a value"),
        ('team = "ops"', 8, "in single quotes"),
        ("team = 1", 8, "column 'team' is of type string, and 1 is not such a value"),
        ("year = 2.5", 8, "a whole number, such as 2024"),
        ("year = 9223372036854775808", 8, "to 9223372036854775807"),
        ("year IN (1, 'x')", 13, "column 'year' is of type int, and 'x' is not such a value"),
        ("score = 1e999", 9, "too large"),
        ("open < true", 1, "has no order"),
        ("open = 1", 8, "true or false"),
        ("open", 1, "compared with nothing"),
        ("at = '2024-13-01'", 6, "ISO 8601"),
        ("at = '2024-01-01T00:00:00.1234567'", 6, "ISO 8601"),
        ("at = '0001-01-01T00:00+14:00'", 6, "years"),
        ("day = '2024-01-01T00:00'", 7, "a date in single quotes"),
        ("tags = 'x'", 1, "tags CONTAINS"),
        ("team CONTAINS 'x'", 1, "not a list"),
        ("tags CONTAINS 1", 15, "of type string[]"),
        ("year LIKE '2%'", 1, "LIKE is for strings"),
        ("team LIKE '%x'", 11, "is not a prefix"),
        ("team LIKE 'a_%'", 11, "is not a prefix"),
        ("team LIKE 'a\\'", 11, "is not a prefix"),
        ("team = NULL", 1, "IS NULL"),
        ("year NOT IN (1, NULL)", 1, "IS NULL"),
        ("team = 'x", 8, "quote is not closed"),
        ("(team = 'x'", 1, "not closed"),
        ("team = 'x')", 11, "not opened"),
        ("team = 'x'; DROP TABLE rows", 11, "not part of the filter language"),
        ("team = 'x' -- rest", 8, "comments"),
        ("team = 'x' /* y */", 8, "comments"),
        ("lower(team) = 'x'", 1, "not a column"),
        ("'x' = team", 1, "not a column"),
        ("team = 'a' 'b'", 8, "not a value"),
        ("year = 1 + 1", 10, "'+' is not part of the filter language"),
        ("year = -year", 8, "not part of the filter language"),
        ("team IN (SELECT 1)", 17, "cannot be read at '1'"),
        ("rows.team = 'x'", 5, "not part of the filter language"),
        ("rows = 'x'", 1, "there is no column 'rows'"),
        ("team = E'x'", 9, "cannot be read"),
        ("team = 'a' AND", 12, "cannot be read"),
        ("team = 'a' year = 1", 12, "cannot be read at 'year'"),
        ("NOT " * 4000 + "team = 'a'", 33, "nested"),
        ("(" * 4000 + "team = 'a'" + ")" * 4000, 10, "nested"),
        (" OR ".join(["year = 1"] * 101), 1201, "more than 100"),
        (f"year IN ({', '.join(['1'] * 1001)})", 3010, "more than 1,000 values"),
        ("a" * 20_001, MAX_LENGTH + 1, "longer"),
        ("team = '\ud800'", 9, "half of a surrogate pair"),
        (f"team > '{'x' * (MAX_ORDERED + 1)}'", 8, "by = and IN alone"),
        (f"team NOT BETWEEN 'a' AND '{'é' * (MAX_ORDERED // 2 + 1)}'", 26, "by = and IN alone"),
        (f"NOT team LIKE '{'x' * (MAX_ORDERED + 1)}%'", 15, "by = and IN alone"),
    ],
)
def test_a_filter_that_means_nothing_is_refused_at_its_place(text: str, position: int, says: str) -> None:
    with pytest.raises(FilterError) as caught:
        read(text)
    assert caught.value.position == position
    assert says in str(caught.value)


def test_the_parser_is_loaded_with_the_first_filter() -> None:
    code = "import sys, instep.domain.filter_language; raise SystemExit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
