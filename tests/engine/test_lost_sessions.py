"""A Spark session that one thread gives up while another one waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from instep.error_transport import SparkLost
from instep.errors import Away, Transient, UserError
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


def test_all_who_use_one_of_ours_that_is_lost_may_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entities of a worker share it: the second one is told when the first one has left it already."""
    session = _over(monkeypatch)
    spark = LazySpark()
    spark._session, spark._ours = session, True
    for _ in range(2):
        told = spark.explained(session, SparkLost("the connection is reset"))
        assert isinstance(told, Transient)
        assert not isinstance(told, Away)


def test_one_that_was_given_and_is_lost_is_not_there_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session = _over(monkeypatch)
    spark = LazySpark(given=session)
    for _ in range(2):
        assert isinstance(spark.explained(session, SparkLost("the connection is reset")), Away)


def _over(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sparkapi, "is_over", lambda _: True)
    monkeypatch.setattr(sparkapi, "is_connect", lambda _: True)
    monkeypatch.setattr(sparkapi, "stop", lambda _: None)

    class Session:
        """As much of one as can be kept in a set of weak references."""

    return Session()
