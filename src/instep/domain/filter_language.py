"""The language of filters, a small subset of SQL's WHERE: text as a condition, checked against the declared columns.

    team = 'ops' AND year >= 2024 AND (tags CONTAINS 'urgent' OR closed_at IS NULL) AND title LIKE 'Re: %'

sqlglot parses it. What is not of this subset is refused, first by its tokens, then by the nodes of the tree. What the
forms mean is written down in docs/search.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import (
    MAX_INT,
    MIN_INT,
    Condition,
    Contains,
    FilterError,
    FilterValue,
    IsNull,
    OneOf,
    Order,
    Ordered,
    Prefix,
    either,
    every,
    negation,
)
from instep.domain.texts import nearest

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.tokenizer_core import Token

#: A filter's length, how deep its parentheses (and NOTs) go, its comparisons, and the values that it names in all:
#: every target takes that much, and no parser runs out of its stack.
MAX_LENGTH: Final = 20_000
MAX_DEPTH: Final = 8
MAX_LEAVES: Final = 100
MAX_VALUES: Final = 1_000
#: Bytes of a text that others are compared with by order, or that they begin with: Lucene's automata take 1,000.
MAX_ORDERED: Final = 900

_TOO_DEEP: Final = f"parentheses and NOT are nested more than {MAX_DEPTH} deep"

ALLOWED: Final = (
    "Allowed: =, !=, <, <=, >, >=, IN, BETWEEN, LIKE 'prefix%', IS NULL, CONTAINS, each of a column and a value, "
    "joined by AND, OR, NOT and parentheses."
)

_T = DocumentColumnType

#: How a value of each type is written.
_FORMS: Final[Mapping[DocumentColumnType, str]] = {
    _T.STRING: "text in single quotes, such as 'ops'",
    _T.INT: "a whole number, such as 2024",
    _T.FLOAT: "a number, such as 0.5",
    _T.BOOL: "true or false",
    _T.TIMESTAMP: "a moment in ISO 8601 in single quotes, such as '2024-05-01T08:30:00Z'",
    _T.DATE: "a date in single quotes, such as '2024-05-01'",
    _T.STRINGS: "text in single quotes, such as 'urgent'",
    _T.INTS: "a whole number, such as 7",
}

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?")


def parsed(text: str, columns: Iterable[DocumentColumn]) -> Condition:
    """The condition that a filter states. Raises `FilterError` with the place of what is wrong."""
    return _parsed(text, tuple(columns))


@lru_cache(maxsize=256)
def _parsed(text: str, columns: Sequence[DocumentColumn]) -> Condition:
    """Kept: an application has few filters, and asks by them again and again."""
    declared = {each.name: each for each in columns}
    if not text.strip():
        raise FilterError("the filter is empty", position=1, hint=ALLOWED)
    if len(text) > MAX_LENGTH:
        raise FilterError(f"the filter is longer than {MAX_LENGTH:,} characters", position=MAX_LENGTH + 1)
    odd = re.search("[\ud800-\udfff]", text)
    if odd:
        raise FilterError("the filter has half of a surrogate pair", position=odd.start() + 1)
    return _Reader(text, declared).condition(_tree(text, declared))


def beginning(column: str, begin: str) -> str:
    """The filter of texts in a column that begin like this."""
    quoted = re.sub(r"([\\%_])", r"\\\1", begin).replace("'", "''")
    name = column.replace('"', '""')
    return f"\"{name}\" LIKE '{quoted}%'"


def _tree(text: str, declared: Mapping[str, DocumentColumn]) -> exp.Expr:
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError, TokenError
    from sqlglot.expressions import Condition as AnyCondition

    dialect = Dialect()
    try:
        tokens = dialect.tokenize(text)
    except TokenError as error:
        # It says where it gave up, which is the end of the text: what is open began before.
        quote = _open_quote(text)
        if quote is None:
            raise FilterError(f"the filter cannot be read: {str(error).splitlines()[0]}", position=1) from None
        raise FilterError(
            "a quote is not closed", position=quote + 1, hint="A quote in a text is doubled: 'it''s'."
        ) from None
    known = _known(tokens, declared)
    try:
        (tree,) = dialect.parser().parse_into(AnyCondition, known, text)
    except ParseError as error:
        raise _unread(error, text, known) from None
    if tree is None:
        raise FilterError("the filter is empty", position=1, hint=ALLOWED)
    return tree


def _open_quote(text: str) -> int | None:
    inside: str | None = None
    start = None
    for place, letter in enumerate(text):
        if inside is None and letter in "'\"":
            inside, start = letter, place
        elif letter == inside:
            inside = None
    return start if inside else None


def _known(tokens: Sequence[Token], declared: Mapping[str, DocumentColumn]) -> list[Token]:
    """The tokens, each of an allowed kind. A column may be called like a word of SQL; CONTAINS is an operator."""
    from sqlglot.tokenizer_core import Token
    from sqlglot.tokenizer_core import TokenType as kinds  # noqa: N813 - its members are read like words

    allowed = {
        *(kinds.VAR, kinds.IDENTIFIER, kinds.STRING, kinds.NUMBER, kinds.TRUE, kinds.FALSE, kinds.NULL),
        *(kinds.EQ, kinds.NEQ, kinds.LT, kinds.LTE, kinds.GT, kinds.GTE, kinds.DASH, kinds.L_PAREN, kinds.R_PAREN),
        *(kinds.COMMA, kinds.IN, kinds.NOT, kinds.LIKE, kinds.BETWEEN, kinds.IS, kinds.AND, kinds.OR),
    }
    reserved = {
        kinds.AND,
        kinds.OR,
        kinds.NOT,
        kinds.IN,
        kinds.LIKE,
        kinds.BETWEEN,
        kinds.IS,
        kinds.NULL,
        kinds.TRUE,
        kinds.FALSE,
    }
    found: list[Token] = []
    opened: list[Token] = []
    nots = 0
    for token, following in zip_longest(tokens, tokens[1:]):
        kind, position = token.token_type, token.start + 1
        written = kind is not kinds.IDENTIFIER and kind is not kinds.STRING
        if token.comments:
            raise FilterError("a filter has no comments", position=position, hint=ALLOWED)
        if written and token.text.upper() == "CONTAINS" and _follows_column(found):
            kind = kinds.AT_GT
        elif written and token.text.isidentifier() and (token.text in declared or kind not in allowed):
            kind = kinds.IDENTIFIER if kind not in reserved else kind
        elif kind not in allowed or (
            kind is kinds.DASH and (not following or following.token_type is not kinds.NUMBER)
        ):
            raise FilterError(f"{_cut(token.text)} is not part of the filter language", position=position, hint=ALLOWED)
        nots = nots + 1 if kind is kinds.NOT else 0
        if kind is kinds.L_PAREN:
            opened.append(token)
        elif kind is kinds.R_PAREN and not opened:
            raise FilterError("this parenthesis was not opened", position=position)
        elif kind is kinds.R_PAREN:
            opened.pop()
        # One more than conditions may have: those of IN.
        if max(len(opened) - 1, nots) > MAX_DEPTH:
            raise FilterError(_TOO_DEEP, position=position)
        found.append(Token(kind, token.text, token.line, token.col, token.start, token.end))
    if opened:
        raise FilterError("this parenthesis is not closed", position=opened[-1].start + 1)
    return found


def _follows_column(tokens: Sequence[Token]) -> bool:
    """Whether an operator may come now."""
    from sqlglot.tokenizer_core import TokenType

    before = [each.token_type for each in tokens[-2:]]
    column = (TokenType.IDENTIFIER, TokenType.VAR)
    return before[-1:] != [] and (before[-1] in column or (before[-1] is TokenType.NOT and before[0] in column))


def _unread(error: Any, text: str, tokens: Sequence[Token]) -> FilterError:
    """Turn an error of sqlglot into ours, at the token that it names."""
    said = (error.errors or [{}])[0]
    place = next((each.start for each in tokens if (each.line, each.col) == (said.get("line"), said.get("col"))), None)
    position = len(text.rstrip()) if place is None else place + 1
    about = said.get("highlight") or ""
    what = f"the filter cannot be read at {_cut(about)}" if about else "the filter ends too early"
    return FilterError(what, position=max(1, position), hint=ALLOWED)


def _cut(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


class _Reader:
    """The tree of one text, read once."""

    def __init__(self, text: str, declared: Mapping[str, DocumentColumn]) -> None:
        self._text = text
        self._declared = declared
        self._leaves = 0
        self._values = 0

    def condition(self, node: exp.Expr, depth: int = 0) -> Condition:
        from sqlglot import exp

        if depth > MAX_DEPTH:
            raise self._wrong(node, _TOO_DEEP)
        match node:
            case exp.Paren():
                return self.condition(node.this, depth + 1)
            case exp.Not():
                return negation(self.condition(node.this, depth + 1))
            case exp.And():
                return every([self.condition(each, depth) for each in self._chain(node, exp.And)])
            case exp.Or():
                return either([self.condition(each, depth) for each in self._chain(node, exp.Or)])
        self._leaves += 1
        if self._leaves > MAX_LEAVES:
            raise self._wrong(node, f"the filter has more than {MAX_LEAVES} comparisons")
        return self._leaf(node)

    def _chain(self, node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
        """The members of `a AND b AND c`, however many there are: a tree that leans to the left."""
        members = []
        while isinstance(node, kind):
            members.append(node.expression)
            node = node.this
        return [node, *reversed(members)]

    def _leaf(self, node: exp.Expr) -> Condition:
        from sqlglot import exp

        found: Condition | None = None
        match node:
            case exp.EQ() | exp.NEQ():
                column = self._compared(node, "=")
                found = OneOf(column, (self._value(column, node.expression),), isinstance(node, exp.NEQ))
            case exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                column = self._compared(node, "<")
                orders = {exp.LT: Order.LESS, exp.LTE: Order.AT_MOST, exp.GT: Order.MORE, exp.GTE: Order.AT_LEAST}
                found = Ordered(column, orders[type(node)], self._ordered(column, node.expression))
            case exp.Between() if node.args.get("symmetric") is None:
                column = self._compared(node, "<")
                low, high = (self._ordered(column, node.args[each]) for each in ("low", "high"))
                found = every([Ordered(column, Order.AT_LEAST, low), Ordered(column, Order.AT_MOST, high)])
            case exp.In() if node.expressions:
                column = self._compared(node, "IN")
                found = OneOf(column, tuple(dict.fromkeys(self._value(column, each) for each in node.expressions)))
            case exp.Like():
                found = self._like(self._compared(node, "LIKE"), node)
            case exp.ArrayContainsAll():
                found = self._contains(node)
            case exp.Is() if isinstance(node.expression, exp.Null):
                found = IsNull(self._column(node.this), bool(node.args.get("negate")))
            case exp.Column():
                name = self._column(node).name
                hint = f"Write {name} = …, or {name} IS NULL."
                raise self._wrong(node, f"column {name!r} is compared with nothing", hint=hint)
        if found is None:
            raise self._wrong(node, f"{_cut(self._shown(node))} is not a condition of the filter language")
        return found

    def _contains(self, node: exp.Expr) -> Condition:
        column = self._column(node.this)
        if not column.type.listed:
            what = f"column {column.name!r} is not a list, but of type {column.type}"
            raise self._wrong(node.this, what, hint="CONTAINS is for lists.")
        value = self._value(column, node.expression)
        assert isinstance(value, str | int)
        return Contains(column, (value,))

    def _compared(self, node: exp.Expr, form: str) -> DocumentColumn:
        """The column of a comparison, which is one that its type has."""
        column = self._column(node.this)
        if column.type.listed:
            raise self._wrong(
                node.this,
                f"column {column.name!r} is a list",
                hint=f"Lists are asked by: {column.name} CONTAINS …, {column.name} IS NULL.",
            )
        if column.type is _T.BOOL and form == "<":
            raise self._wrong(
                node.this, f"column {column.name!r} is a bool, which has no order", hint="Allowed: = and !=."
            )
        if form == "LIKE" and column.type is not _T.STRING:
            raise self._wrong(
                node.this,
                f"column {column.name!r} is not a string, but of type {column.type}",
                hint="LIKE is for strings.",
            )
        return column

    def _column(self, node: exp.Expr) -> DocumentColumn:
        from sqlglot import exp

        if not isinstance(node, exp.Column) or len(node.parts) != 1 or not isinstance(node.this, exp.Identifier):
            raise self._wrong(
                node, f"{_cut(self._shown(node))} is not a column", hint="The column comes first: team = 'ops'."
            )
        name = node.name
        if name not in self._declared:
            meant = nearest(name, self._declared)
            raise self._wrong(
                node,
                f"there is no column {_cut(name)}" + (f" (did you mean {meant}?)" if meant else ""),
                hint=f"Columns: {', '.join(self._declared)}.",
            )
        return self._declared[name]

    def _like(self, column: DocumentColumn, node: exp.Expr) -> Condition:
        from sqlglot import exp

        pattern = node.expression
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise self._wrong(pattern, "LIKE takes a text in single quotes")
        pieces = re.findall(r"\\.|.", pattern.this, re.DOTALL)
        body = pieces[:-1] if pieces and pieces[-1] == "%" else pieces
        if any(each in ("%", "_", "\\") or (len(each) == 2 and each[1] not in "%_\\") for each in body):
            raise self._wrong(
                pattern,
                f"LIKE {_cut(pattern.this)} is not a prefix",
                hint=r"Allowed: LIKE 'beginning%'. A %, _ or \ of the text itself is written \%, \_ or \\.",
            )
        text = "".join(each[-1] for each in body)
        if body != pieces:
            self._demand_short(text, pattern)
        negated = bool(node.args.get("negate"))
        return Prefix(column, text, negated) if body != pieces else OneOf(column, (text,), negated)

    def _ordered(self, column: DocumentColumn, node: exp.Expr) -> FilterValue:
        """A value that others are compared with by order."""
        value = self._value(column, node)
        if isinstance(value, str):
            self._demand_short(value, node)
        return value

    def _demand_short(self, text: str, node: exp.Expr) -> None:
        if len(text.encode()) > MAX_ORDERED:
            what = f"a text of more than {MAX_ORDERED} bytes is compared by = and IN alone"
            raise self._wrong(node, what, hint="Compare with a shorter one.")

    def _value(self, column: DocumentColumn, node: exp.Expr) -> FilterValue:
        from sqlglot import exp

        self._values += 1
        if self._values > MAX_VALUES:
            raise self._wrong(node, f"the filter names more than {MAX_VALUES:,} values")
        if isinstance(node, exp.Null):
            raise self._wrong(
                node, "nothing equals NULL", hint=f"Write {column.name} IS NULL, or {column.name} IS NOT NULL."
            )
        negative = isinstance(node, exp.Neg)
        literal = node.this if negative else node
        try:
            match literal:
                case exp.Boolean() if not negative:
                    return _VALUES[column.type, bool](bool(literal.this))
                case exp.Literal() if literal.is_string and not negative:
                    return _VALUES[column.type, str](literal.this)
                case exp.Literal() if not literal.is_string:
                    return _VALUES[column.type, float](f"-{literal.this}" if negative else literal.this)
        except (KeyError, ValueError) as error:
            why = f": {error}" if isinstance(error, _Unfit) else ""
            raise self._wrong(
                node,
                f"column {column.name!r} is of type {column.type}, and {self._shown(node)} is not such a value{why}",
                hint=f"Allowed: {_FORMS[column.type]}.",
            ) from None
        raise self._wrong(node, f"{_cut(self._shown(node))} is not a value", hint=f"Allowed: {_FORMS[column.type]}.")

    def _wrong(self, node: exp.Expr, what: str, *, hint: str = ALLOWED) -> FilterError:
        return FilterError(what, position=self._span(node)[0] + 1, hint=hint)

    def _shown(self, node: exp.Expr) -> str:
        start, end = self._span(node)
        return self._text[start:end] or node.sql()

    def _span(self, node: exp.Expr) -> tuple[int, int]:
        """From the first to the last of its names and values: only these know where they are."""
        places = [each.meta for each in node.walk() if "start" in each.meta]
        if not places:
            return self._span(node.parent) if node.parent else (0, 0)
        return min(each["start"] for each in places), max(each["end"] for each in places) + 1


class _Unfit(ValueError):
    """A value in the form of its type that the type does not have."""


def _whole(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise ValueError(text)
    if len(text) > 20 or not MIN_INT <= int(text) <= MAX_INT:
        raise _Unfit(f"they go from {MIN_INT} to {MAX_INT}")
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        raise ValueError(text)
    if not math.isfinite(value := float(text)):
        raise _Unfit("it is too large")
    return value + 0.0  # -0.0 becomes 0.0


def _moment(text: str) -> datetime:
    if not _MOMENT.fullmatch(text):
        raise ValueError(text)
    found = datetime.fromisoformat(text)
    try:
        return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).astimezone(UTC)
    except OverflowError:
        raise _Unfit("it is beyond the years 1 to 9999") from None


def _day(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    return date.fromisoformat(text)


#: By the type of a column and that of a literal.
_VALUES: Final[Mapping[tuple[DocumentColumnType, type], Callable[[Any], FilterValue]]] = {
    (_T.STRING, str): str,
    (_T.STRINGS, str): str,
    (_T.INT, float): _whole,
    (_T.INTS, float): _whole,
    (_T.FLOAT, float): _number,
    (_T.BOOL, bool): bool,
    (_T.TIMESTAMP, str): _moment,
    (_T.DATE, str): _day,
}
