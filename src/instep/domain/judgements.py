"""Judged queries as they are written: lines of JSON, or queries and judgements in the forms of TREC and BEIR."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from instep.domain.relevance import JudgedQuery

#: More queries take too long to be asked before each promotion.
MAX_QUERIES: Final = 10_000
#: Sums of such numbers are exact enough.
MAX_RELEVANCE: Final = 1_000_000
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


class JudgementError(ValueError):
    """A line that is wrong, and in what."""


def judged_queries(lines: Iterable[str], judgements: Iterable[str] | None = None) -> list[JudgedQuery]:
    """The queries that are judged, in their order. Raises `JudgementError`.

    `lines` are JSON objects (`{"id": "q1", "query": "printer on fire", "relevant": ["docs/fire.md"]}`, where `relevant`
    may say how much: `{"docs/fire.md": 3}`; BEIR's `_id` and `text` will do), or an id, a tab and a text. `judgements`
    are TREC's (query, anything, document, relevance) or BEIR's (query, document, relevance), for queries without
    `relevant`.
    """
    relevant = _judgements(judgements) if judgements is not None else {}
    found: dict[str, JudgedQuery] = {}
    for number, line in _told(lines):
        query = _of_json(number, line) if line.startswith("{") else _of_columns(number, line)
        if query.id in found:
            raise JudgementError(f"line {number}: the query {query.id!r} is listed twice")
        found[query.id] = JudgedQuery(query.id, query.text, {**query.relevant, **relevant.get(query.id, {})})
        if len(found) > MAX_QUERIES:
            raise JudgementError(f"there are more than {MAX_QUERIES:,} queries")
    judged = [each for each in found.values() if each.relevant]
    if not judged:
        raise JudgementError("no query has a document that is relevant to it" if found else "there are no queries")
    return judged


def _told(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    return ((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())


def _of_json(number: int, line: str) -> JudgedQuery:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        raise JudgementError(f"line {number} is not JSON") from None
    text = told.get("query", told.get("text"))
    if not isinstance(text, str) or not text.strip():
        raise JudgementError(f"line {number} has no `query`")
    id = told.get("id", told.get("_id", text))
    if not isinstance(id, str | int):
        raise JudgementError(f"line {number}: `id` must be text or a number")
    if any(map(_SURROGATE.search, (text, str(id)))):
        raise JudgementError(f"line {number} has half a character (a lone surrogate)")
    return JudgedQuery(str(id), text, _relevant(number, told.get("relevant", {})))


def _of_columns(number: int, line: str) -> JudgedQuery:
    id, tab, text = line.partition("\t")
    if not tab or not text.strip():
        raise JudgementError(f"line {number} must be a JSON object, or an id, a tab and a query")
    return JudgedQuery(id.strip(), text.strip(), {})


def _relevant(number: int, told: Any) -> dict[str, float]:
    if isinstance(told, list) and all(isinstance(each, str) for each in told):
        return dict.fromkeys(told, 1.0)
    if isinstance(told, dict):
        values = {name: _relevance(number, value) for name, value in told.items()}
        return {name: value for name, value in values.items() if value > 0}
    raise JudgementError(f"line {number}: `relevant` must be a list of documents, or say how relevant each is")


def _relevance(number: int, told: Any) -> float:
    try:
        value = math.nan if isinstance(told, bool) else float(told)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not abs(value) <= MAX_RELEVANCE:
        raise JudgementError(f"line {number}: the relevance must be a number, of {MAX_RELEVANCE:,} at most")
    return value


def _judgements(lines: Iterable[str]) -> Mapping[str, dict[str, float]]:
    """By the id of the query; those that are not relevant are left out."""
    found: dict[str, dict[str, float]] = {}
    for number, line in _told(lines):
        # A name may have blanks where tabs stand between.
        columns = [each.strip() for each in line.split("\t")]
        if len(columns) not in (3, 4) or " " in columns[0]:
            columns = line.split()
        if columns[0] == "query-id":
            continue  # The head of BEIR's.
        if len(columns) not in (3, 4):
            raise JudgementError(f"line {number} of the judgements must have 4 columns, as TREC has, or 3 as BEIR has")
        value = _relevance(number, columns[-1])
        if value > 0:
            found.setdefault(columns[0], {})[columns[-2]] = value
    return found
