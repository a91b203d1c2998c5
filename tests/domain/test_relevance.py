"""How well a ranking answers a judged query: values worked out by hand and by trec_eval's definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.relevance import Demand, Found, JudgedQuery, Measured, gains, is_metric, score, shortfall

QUERY = JudgedQuery("q", "text", {"a": 3.0, "b": 2.0, "c": 3.0, "e": 1.0, "f": 2.0})


def test_ndcg_is_that_of_the_textbook() -> None:
    """The example of Järvelin and Kekäläinen's measure as it is commonly given: gains 3 2 3 0 1 2."""
    found = [3.0, 2.0, 3.0, 0.0, 1.0, 2.0]
    query = JudgedQuery("q", "t", {"a": 3.0, "b": 2.0, "c": 3.0, "d": 1.0, "e": 2.0, "g": 3.0, "h": 2.0})
    assert score("ndcg@6", found, query) == pytest.approx(6.861 / 8.740, abs=1e-3)


@pytest.mark.parametrize(
    ("metric", "found", "value"),
    [
        ("recall@2", [0, 3.0, 2.0], 1 / 5),
        ("recall@100", [0, 3.0, 2.0], 2 / 5),
        ("mrr", [0, 0, 2.0, 3.0], 1 / 3),
        ("mrr", [0, 0], 0),
        ("ndcg@1", [3.0], 1),
        ("ndcg@2", [0, 3.0], (3 / math.log2(3)) / (3 + 3 / math.log2(3))),
        ("ndcg@10", [], 0),
    ],
)
def test_values_by_hand(metric: str, found: list[float], value: float) -> None:
    assert score(metric, found, QUERY) == pytest.approx(value)


@given(st.permutations([3.0, 2.0, 3.0, 1.0, 2.0, 0.0, 0.0]), st.sampled_from(["ndcg@5", "recall@3", "mrr", "ndcg@100"]))
def test_no_ranking_is_better_than_the_best(found: list[float], metric: str) -> None:
    best = sorted(found, reverse=True)
    assert 0 <= score(metric, found, QUERY) <= score(metric, best, QUERY) <= 1 + 1e-9


@pytest.mark.parametrize("name", ["ndcg", "recall@0", "recall@101", "precision@5", "mrr@10", "ndcg@010"])
def test_other_metrics_are_none(name: str) -> None:
    assert not is_metric(name)


@pytest.mark.parametrize(
    "name",
    [
        "doc_1",
        "file:///data/docs/printers/on%20fire.md",
        "on fire",
        "on fire.md",
        "printers/on fire",
        "data/docs/printers/on fire.md",
    ],
)
def test_a_document_is_known_by_its_id_its_uri_and_the_end_of_its_path(name: str) -> None:
    found = [Found("doc_0", "file:///data/fire.md"), Found("doc_1", "file:///data/docs/printers/on%20fire.md")]
    assert gains(found, JudgedQuery("q", "t", {name: 2.0})) == [0.0, 2.0]


def test_a_name_that_two_documents_have_counts_once() -> None:
    found = [Found("doc_0", "file:///a/x.md"), Found("doc_1", "file:///b/x.md")]
    assert gains(found, JudgedQuery("q", "t", {"x.md": 1.0})) == [1.0, 0.0]


ASKED = [JudgedQuery(f"q{number}", "t", {"a": 1.0}) for number in range(8)]


def measured(*first: int) -> Measured:
    """Queries of these numbers are answered in the first place, the others not at all."""
    return Measured(ASKED, {each.id: [float(number in first)] for number, each in enumerate(ASKED)})


def test_a_build_that_finds_worse_is_told_with_its_queries() -> None:
    demand = Demand.parse("recall@10", "0.98 of served")
    told = shortfall(demand, measured(0, 1), measured(0, 1, 2, 3))
    assert told == (
        "recall@10 is 0.250, and at least 0.490 is required, 0.98 of the 0.500 that is served; "
        "answered worse: q2 (1.00 → 0.00), q3 (1.00 → 0.00)"
    )
    assert shortfall(demand, measured(0, 1, 2, 4), measured(0, 1, 2, 3)) is None
    assert "and 3 more" in str(shortfall(demand, measured(), measured(*range(8))))


def test_a_share_of_nothing_is_no_demand_and_a_value_is_one() -> None:
    assert shortfall(Demand.parse("mrr", "0.9 of served"), measured(), None) is None
    assert "mrr is 0.000, and at least 0.300" in str(shortfall(Demand.parse("mrr", 0.3), measured(), None))
    assert shortfall(Demand.parse("mrr", "0.25"), measured(0, 1), None) is None


@pytest.mark.parametrize(
    ("text", "value", "of_served"),
    [
        (0.3, 0.3, False),
        (1, 1.0, False),
        ("30%", 0.3, False),
        (".98 of served", 0.98, True),
        ("98% of served", 0.98, True),
        (" 98 %  of  served ", 0.98, True),
        ("100% of served", 1.0, True),
    ],
)
def test_a_demand_is_a_number_or_a_share_in_either_way_to_write_it(
    text: str | float, value: float, of_served: bool
) -> None:
    demand = Demand.parse("mrr", text)
    assert demand.value == pytest.approx(value)
    assert demand.of_served is of_served


@pytest.mark.parametrize(
    "text",
    [
        *("much", "0.98 of it", "0", "1.2 of served", "nan", "inf", -1, "", "30", "0%", "101% of served", "of served"),
        *("0.9%% of served", "0.9of served", True),
    ],
)
def test_a_demand_that_means_nothing_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="must be"):
        Demand.parse("mrr", text)
