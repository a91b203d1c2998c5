"""Judged queries as people write them: JSON lines, tabs, TREC and BEIR."""

from __future__ import annotations

import pytest

from instep.domain.judgements import JudgementError, judged_queries
from instep.domain.relevance import JudgedQuery


def test_lines_of_json_hold_queries_and_judgements() -> None:
    lines = [
        '{"id": "q1", "query": "printer on fire", "relevant": {"fire.md": 3, "smoke.md": 0}}',
        "",
        '{"query": "neap tide", "relevant": ["tides.md"]}',
        '{"id": 3, "query": "nobody judged this"}',
    ]
    assert judged_queries(lines) == [
        JudgedQuery("q1", "printer on fire", {"fire.md": 3.0}),
        JudgedQuery("neap tide", "neap tide", {"tides.md": 1.0}),
    ]


@pytest.mark.parametrize(
    ("queries", "judgements"),
    [
        (["7\twhat is a tide"], ["7 0 tides 2", "7 0 winds -1", "8 0 other 1"]),
        (['{"_id": "7", "text": "what is a tide"}'], ["query-id\tcorpus-id\tscore", "7\ttides\t2"]),
        (["7\twhat is a tide"], ["7\t0\ttides\t2"]),
        (["7\twhat is a tide"], ["7 0\ttides\t2"]),
    ],
)
def test_files_of_trec_and_beir_are_read_as_they_are(queries: list[str], judgements: list[str]) -> None:
    assert judged_queries(queries, judgements) == [JudgedQuery("7", "what is a tide", {"tides": 2.0})]


@pytest.mark.parametrize(
    ("queries", "judgements", "said"),
    [
        ([], None, "there are no queries"),
        (["1\tq"], None, "no query has a document"),
        (["only words"], None, "line 1 must be a JSON object"),
        (['{"query": '], None, "line 1 is not JSON"),
        (['{"id": 1}'], None, "line 1 has no `query`"),
        (['{"query": "q", "relevant": "a"}'], None, "line 1: `relevant` must be"),
        (['{"query": "q", "relevant": {"a": "much"}}'], None, "line 1: the relevance must be a number"),
        (['{"query": "q", "relevant": {"a": 1' + "0" * 400 + "}}"], None, "line 1: the relevance must be a number"),
        (["1\ta", "1\tb"], ["1 0 d 1"], "line 2: the query '1' is listed twice"),
        (["1\ta"], ["1 d"], "line 1 of the judgements must have 4 columns"),
        (["1\ta"], ["1 0 d x"], "line 1: the relevance must be a number"),
        (["1\ta"], ["1 0 d 1e308"], "line 1: the relevance must be a number, of 1,000,000 at most"),
        (['{"query": "\\ud800"}'], None, "line 1 has half a character"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(queries: list[str], judgements: list[str] | None, said: str) -> None:
    with pytest.raises(JudgementError, match=said):
        judged_queries(queries, judgements)


def test_names_between_tabs_may_have_blanks() -> None:
    (query,) = judged_queries(["q1\ta tide"], ["q1\tmy tides.md\t1", "q1\t0\thigh tides.md\t2"])
    assert query.relevant == {"my tides.md": 1.0, "high tides.md": 2.0}
