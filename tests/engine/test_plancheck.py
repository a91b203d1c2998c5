"""Which plans of Spark keep documents where they are: by the text of `explain("formatted")`."""

from __future__ import annotations

import pytest

from instep.errors import UserError
from instep.pipeline.engine.transforming import check_plan, check_rows

SOURCE = "instep_wave"


def plan(*steps: str, source: str = SOURCE) -> str:
    """A tree of one branch, from the root down to the scan of the source."""
    names = [*steps, f"BatchScan {source}"]
    tree = [
        ("" if not depth else "   " * (depth - 1) + "+- ") + f"{name} ({len(names) - depth})"
        for depth, name in enumerate(names)
    ]
    details = [f"({len(names) - depth}) {name}\nOutput: []" for depth, name in enumerate(names)]
    return "\n".join(["== Physical Plan ==", *tree, "", "", *details, ""])


def test_plans_without_an_exchange_pass() -> None:
    check_plan(plan(), SOURCE)
    check_plan(plan("* Project", "* Filter"), SOURCE)
    check_plan(plan("Coalesce", "* Project"), SOURCE)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("Exchange", "repartition"),
        ("* Sort", "sort"),
        ("* HashAggregate", "groupBy, distinct or aggregate"),
        ("Window", "window function"),
        ("GlobalLimit", "limit"),
        ("TakeOrderedAndProject", "orderBy with limit"),
        ("* SortMergeJoin Inner", "join"),
        ("CartesianProduct", "join"),
        ("Union", "union"),
        ("Sample", "sample"),
        ("FlatMapGroupsInArrow", "grouped map"),
    ],
)
def test_a_plan_step_that_moves_documents_is_refused_by_name(step: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        check_plan(plan("* Project", step, "* Filter"), SOURCE)
    assert said in f"{caught.value} {caught.value.hint}"
    with pytest.raises(UserError, match="would move"):
        check_rows(plan("* Project", step, "* Filter"), SOURCE)


def test_a_plan_without_the_document_source_is_refused() -> None:
    for text in (plan(source="another"), "", "no plan at all"):
        with pytest.raises(UserError, match="does not come from the documents"):
            check_plan(text, SOURCE)
        with pytest.raises(UserError):
            check_rows(text, SOURCE)
    check_rows(plan("* Project"), SOURCE)
