"""Surveys of a cluster: what happens in the way is said in the answer, and never takes its place."""

from __future__ import annotations

from typing import Any

import pytest

from instep.answers.cluster import examine
from instep.errors import Away


class _Trial:
    def __init__(self, *, bad: str) -> None:
        self._bad = bad

    def begun(self) -> Any:
        if self._bad == "begin":
            raise RuntimeError("out of cheese")
        return self

    def end(self) -> None:
        raise RuntimeError("out of cheese")


class _Setup:
    in_process = False
    target_name = "index"
    alias = "Note"

    def __init__(self, bad: str) -> None:
        self._bad = bad

    def target_trial(self) -> _Trial:
        if self._bad == "trial":
            raise RuntimeError("out of cheese")
        return _Trial(bad=self._bad)

    def reading(self) -> None:
        return None


@pytest.mark.parametrize("bad", ["trial", "begin", "end"])
def test_an_error_that_nobody_expects_is_a_finding(bad: str) -> None:
    setups: Any = [_Setup(bad)]

    def spark() -> Any:
        if bad == "end":
            raise Away("the Spark master does not let it in")
        return object()

    found = examine(setups, {"index": "lance"}, spark, "local[2]")
    details = {each.subject: each.detail for each in found.findings}
    if bad == "end":
        assert "does not let it in" in details["Spark"]
    else:
        assert details["target index"] == "RuntimeError: out of cheese"
    assert found.executors == []
