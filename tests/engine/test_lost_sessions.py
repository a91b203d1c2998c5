"""A Spark session that one thread gives up while another one waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from instep.errors import UserError
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.session import LazySpark


@pytest.fixture(autouse=True)
def _without_a_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparkapi, "is_on_this_machine", lambda _: True)


def test_who_waits_for_a_session_that_another_thread_gives_up_gets_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: Any = object()
    started: Any = object()
    spark = LazySpark(given=lost)
    following = [None, started]

    def begin() -> None:
        spark._session = following.pop(0)  # As `explained` leaves it in another thread; then as it starts again.

    monkeypatch.setattr(spark, "begin", begin)
    assert spark.get() is started


def test_one_that_is_closed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = LazySpark()
    spark.close()
    monkeypatch.setattr(spark, "begin", lambda: None)
    with pytest.raises(UserError, match="closed already"):
        spark.get()
